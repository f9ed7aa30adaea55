"""Every kind of damage is found, and named: the array, the place, and both values."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.golden.verify import verify_fixture
from dsa_crosscheck.fixtures.golden.difference import differences, first_difference
from dsa_crosscheck.fixtures.golden.golden import Golden, load_golden, save_golden
from dsa_crosscheck.fixtures.golden.manifest import Entry, read_manifest, write_manifest
from dsa_crosscheck.fixtures.golden.packaged import packaged_folder
from dsa_crosscheck.fixtures.netcdf import StoredArray

NAME = "sglang-v4-fp8.fp4.exact-integers"
SECONDS = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one committed fixture and its manifest."""
    shutil.copy(packaged_folder() / f"{NAME}.nc", tmp_path)
    write_manifest(tmp_path, {NAME: read_manifest(packaged_folder())[NAME]})
    return tmp_path


def entry() -> Entry:
    return read_manifest(packaged_folder())[NAME]


def tampered(folder: Path, change: dict[str, StoredArray | None], **attributes: str | int) -> tuple[str, ...]:
    """Problems of the fixture with arrays replaced or, for None, removed; its own hash is made to fit."""
    path = folder / f"{NAME}.nc"
    golden = load_golden(path)
    arrays = {name: array for name, array in {**golden.arrays, **change}.items() if array is not None}
    save_golden(path, Golden(arrays, {**golden.attributes, **attributes}))
    return verify_fixture(path, entry()).problems


def array(folder: Path, name: str) -> StoredArray:
    return load_golden(folder / f"{NAME}.nc").arrays[name]


def with_bit(stored: StoredArray, at: tuple[int, ...], bit: int) -> StoredArray:
    bits = stored.values.copy().view(f"u{stored.values.itemsize}")
    bits[at] ^= np.asarray(1 << bit, bits.dtype)
    return replace(stored, values=bits.view(stored.values.dtype))


@pytest.mark.parametrize(
    ("name", "at", "bit"),
    [
        ("key.codes", (3, 17), 0),
        ("key.scales", (1, 0), 7),
        ("cache", (2, 5), 3),
        ("poisoned_cache", (0, 0), 6),
        ("inputs.pooled", (2, 9), 31),
        ("inputs.block_table", (0, 1), 4),
        ("key.normed", (0, 0), 0),
        ("scores", (0, 1), 0),
        ("bounds", (1, 0, 0), 52),
        ("selection", (0, 0), 1),
        ("tie_census", (0, 0), 0),
    ],
)
def test_a_flipped_bit_is_found_where_it_is(name: str, at: tuple[int, ...], bit: int, folder: Path) -> None:
    """Even the last bit of a float64 number."""
    good = array(folder, name)
    bad = with_bit(good, at, bit)
    (problem,) = tampered(folder, {name: bad})
    place = ", ".join(map(str, at))
    assert problem.startswith(f"{NAME}: {name}[{place}]: should be ")
    if good.logical_dtype in ("float64", "float32", "int32", "int64", "uint8"):
        assert problem.endswith(f"should be {good.values[at].item()!r}, got {bad.values[at].item()!r}")
    else:
        assert f"should be 0x{good.values[at]:02x} (" in problem
        assert f", got 0x{bad.values[at]:02x} (" in problem


def test_the_first_place_of_several_is_named(folder: Path) -> None:
    bad = with_bit(with_bit(array(folder, "cache"), (4, 0), 0), (2, 7), 0)
    (problem,) = tampered(folder, {"cache": bad})
    assert problem.startswith(f"{NAME}: cache[2, 7]: ")
    assert problem.endswith("(2 places differ)")


def test_structure_is_named(folder: Path) -> None:
    lengths = array(folder, "lengths")
    cases: list[tuple[dict[str, StoredArray | None], str]] = [
        ({"margin": None}, "margin: should be present, is missing"),
        ({"extra": lengths}, "extra: should be missing, is present"),
        ({"lengths": replace(lengths, dims=("lines",))}, "lengths: dims should be ['rows'], got ['lines']"),
        (
            {"lengths": StoredArray(("rows",), lengths.values.astype(np.int64), "int64")},
            "lengths: dtype should be int32, got int64",
        ),
        (
            {"lengths": StoredArray(("fewer",), lengths.values[:-1], "int32")},
            "lengths: dims should be ['rows'], got ['fewer']",
        ),
        (
            {"key.codes": replace(array(folder, "key.codes"), logical_dtype="uint8")},
            "key.codes: dtype should be float4_e2m1fn, got uint8",
        ),
    ]
    original = (folder / f"{NAME}.nc").read_bytes()
    for change, sentence in cases:
        (folder / f"{NAME}.nc").write_bytes(original)
        assert tampered(folder, change) == (f"{NAME}: {sentence}",)


def test_a_changed_shape_is_named() -> None:
    a = StoredArray(("rows",), np.zeros(3), "float64")
    difference = first_difference("x", a, replace(a, values=np.zeros(4)))
    assert difference is not None
    assert difference.sentence == "x: shape should be [3], got [4]"


def test_a_changed_attribute_is_named(folder: Path) -> None:
    (problem,) = tampered(folder, {}, pages=99)
    assert problem == f"{NAME}: attribute pages: should be {entry()['attributes']['pages']}, got 99"


def test_a_missing_or_foreign_file_is_named(folder: Path) -> None:
    path = folder / f"{NAME}.nc"
    path.write_bytes(path.read_bytes()[:5000])
    (problem,) = verify_fixture(path, entry()).problems
    assert "should be a netCDF-4 case file" in problem
    path.unlink()
    assert verify_fixture(path, entry()).problems == (f"{NAME}: the file is missing",)


def test_without_a_manifest_the_file_must_agree_with_the_reference(folder: Path) -> None:
    """Consistent hashes don't make a wrong score right."""
    path = folder / f"{NAME}.nc"
    assert verify_fixture(path, None).problems == ()
    golden = load_golden(path)
    scores = golden.arrays["scores"]
    wrong = scores.values.copy()
    at = tuple(np.argwhere(wrong > 0)[0])
    wrong[at] *= 1 + 1e-9
    save_golden(path, Golden({**golden.arrays, "scores": replace(scores, values=wrong)}, golden.attributes))
    (problem,) = verify_fixture(path, None).problems
    assert problem.startswith(f"{NAME}: computed again, scores[{at[0]}, {at[1]}]: should be ")


def test_differences_see_nan_payloads_and_signs_of_zero() -> None:
    values = np.array([np.nan, 0.0, 1.0])
    a = StoredArray(("x",), values, "float64")
    assert differences({"a": a}, {"a": replace(a, values=values.copy())}) == []
    for at, bit in ((0, 0), (1, 63)):
        (found,) = differences({"a": a}, {"a": with_bit(a, (at,), bit)}, {"b": np.ones(3)})
        assert (found.what, found.at) == ("values", (at,))
    (found,) = differences({"a": a}, {"a": with_bit(a, (0,), 51)}, {"a": np.full(3, np.inf)})
    assert found.at == (0,), "no limit makes a number of NaN"


def test_a_limit_allows_what_it_says_and_no_more() -> None:
    a = StoredArray(("x",), np.array([1.0, np.inf]), "float64")
    moved = replace(a, values=a.values + np.array([1e-9, 0.0]))
    assert differences({"a": a}, {"a": moved}, {"a": np.full(2, 2e-9)}) == []
    (found,) = differences({"a": a}, {"a": moved}, {"a": np.full(2, 0.5e-9)})
    assert found.at == (0,)


def test_the_command_verifies_the_committed_set_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.process_time()
    assert main(["fixtures", "verify"]) == 0
    assert time.process_time() - started < SECONDS
    assert ": no problems" in capsys.readouterr().out


def test_the_command_fails_on_damage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fixtures", "verify", "--folder", str(folder)]) == 0
    assert main(["fixtures", "verify", str(folder / f"{NAME}.nc")]) == 0
    assert main(["fixtures", "diff", NAME, str(folder / f"{NAME}.nc")]) == 0
    capsys.readouterr()
    tampered(folder, {"cache": with_bit(array(folder, "cache"), (2, 5), 3)})
    assert main(["fixtures", "verify", "--folder", str(folder)]) == 1
    assert f"{NAME}: cache[2, 5]: should be " in capsys.readouterr().out
    # A file beside its manifest is held to it.
    assert main(["fixtures", "verify", str(folder / f"{NAME}.nc")]) == 1
    assert main(["fixtures", "diff", NAME, str(folder / f"{NAME}.nc")]) == 1
    assert "cache[2, 5]: should be " in capsys.readouterr().out


def test_a_file_that_no_manifest_lists_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(folder / f"{NAME}.nc", folder / "stray.nc")
    assert main(["fixtures", "verify", "--folder", str(folder)]) == 1
    assert "stray: is not in manifest.json" in capsys.readouterr().out


def test_a_foreign_manifest_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, message in (("{", "should be JSON"), (json.dumps({"manifest_version": 0}), "manifest_version 1, got 0")):
        (folder / "manifest.json").write_text(text)
        assert main(["fixtures", "verify", "--folder", str(folder)]) == 2
        assert message in capsys.readouterr().err


def test_reading_needs_neither_jax_nor_torch_at_import() -> None:
    """A consumer of one fixture loads no framework it didn't ask for."""
    source = (
        "import sys; from dsa_crosscheck.fixtures.golden.packaged import packaged_golden;"
        f"packaged_golden({NAME!r})['cache']; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

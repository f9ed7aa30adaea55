"""Exports hold the same bits: safetensors as its own library reads it, raw as a C++ program does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.fixtures.golden.golden import Golden
from dsa_crosscheck.fixtures.golden.logical import LOGICAL, plain_values
from dsa_crosscheck.fixtures.golden.packaged import packaged_golden, packaged_names
from dsa_crosscheck.fixtures.golden.raw_export import export_raw
from dsa_crosscheck.fixtures.golden.safetensors_export import export_safetensors
from dsa_crosscheck.fixtures.netcdf import StoredArray

READER = Path(__file__).parent.parent / "docs" / "read_fixture.cpp"
TORCH = {
    "float64": torch.float64,
    "float32": torch.float32,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
    "float4_e2m1fn": torch.uint8,
}
ONE_OF_EACH_FORMAT = (
    "sglang-v4-fp8.fp8.gaussian",
    "sglang-v4-fp8.fnuz.amax-above-power",
    "sglang-v4-fp4.fp4.address-coded",
    "sglang-v4-fp4.bf16.gaussian",
    "sglang-v4-bf16.exact.zeros",
)


def all_codes() -> Golden:
    """Every code of every narrow type, and the special wide floats."""
    arrays = {}
    for name, row in LOGICAL.items():
        if row.storage == "uint8":
            arrays[name] = StoredArray(("codes",), np.arange(16 if "4_" in name else 256, dtype=np.uint8), name)
    arrays["bfloat16"] = StoredArray(("all",), np.arange(65536, dtype=np.uint16), "bfloat16")
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1 / 3])
    arrays["float64"] = StoredArray(("two", "three"), special.reshape(2, 3), "float64")
    arrays["float32"] = StoredArray(("six",), special.astype(np.float32), "float32")
    arrays["int64"] = StoredArray(("two",), np.array([-(2**53), 2**53]), "int64")
    arrays["int32"] = StoredArray(("two", "nothing"), np.zeros((2, 0), np.int32), "int32")
    return Golden(arrays, {"name": "codes", "pages": 3})


GOLDENS = [*ONE_OF_EACH_FORMAT, "all codes"]


def golden_called(name: str) -> Golden:
    return all_codes() if name == "all codes" else packaged_golden(name)


def test_the_formats_are_all_there() -> None:
    logical = {array.logical_dtype for name in ONE_OF_EACH_FORMAT for array in packaged_golden(name).arrays.values()}
    assert logical == set(LOGICAL)


@pytest.mark.parametrize("name", GOLDENS)
def test_safetensors_as_torch_reads_it(name: str, tmp_path: Path) -> None:
    golden = golden_called(name)
    export_safetensors(golden, tmp_path / "x.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(golden.arrays)
        metadata = file.metadata()
        for array_name, array in golden.arrays.items():
            tensor = file.get_tensor(array_name)
            assert tensor.dtype == TORCH[array.logical_dtype], array_name
            assert tuple(tensor.shape) == array.values.shape
            if tensor.numel():
                assert tensor.view(torch.uint8).numpy().tobytes() == array.values.tobytes(), array_name
    for attribute, value in golden.attributes.items():
        assert metadata[attribute] == str(value)
    assert json.loads(metadata["logical_dtypes"]) == {n: a.logical_dtype for n, a in golden.arrays.items()}
    assert json.loads(metadata["dims"]) == {n: list(a.dims) for n, a in golden.arrays.items()}


@pytest.mark.parametrize("name", GOLDENS)
def test_raw_as_numpy_reads_it(name: str, tmp_path: Path) -> None:
    golden = golden_called(name)
    export_raw(golden, tmp_path / "raw")
    index = json.loads((tmp_path / "raw" / "fixture.json").read_text())
    assert index["attributes"] == golden.attributes
    assert [row["name"] for row in index["arrays"]] == list(golden.arrays)
    for row in index["arrays"]:
        array = golden.arrays[row["name"]]
        assert (row["dtype"], row["dims"]) == (array.logical_dtype, list(array.dims))
        little = np.dtype(row["storage"]).newbyteorder("<")
        read = np.fromfile(tmp_path / "raw" / row["file"], little).reshape(row["shape"])
        assert read.tobytes() == array.values.tobytes(), row["name"]
    files = {path.name for path in (tmp_path / "raw").iterdir()}
    assert files == {"fixture.json", *(row["file"] for row in index["arrays"])}
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader of the documentation, compiled."""
    compiler = shutil.which("g++")
    assert compiler is not None, "the project needs g++"
    program = tmp_path_factory.mktemp("reader") / "read_fixture"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", str(READER), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("name", GOLDENS)
def test_raw_as_the_cpp_reader_reads_it(name: str, reader: Path, tmp_path: Path) -> None:
    golden = golden_called(name)
    export_raw(golden, tmp_path / "raw")
    for array_name, array in golden.arrays.items():
        command = [str(reader), str(tmp_path / "raw"), array_name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        read = np.array([float(line) for line in done.stdout.split()])
        expected = plain_values(array).astype(np.float64).ravel()
        np.testing.assert_array_equal(read, expected, err_msg=array_name)
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(read[number]), np.signbit(expected[number]), err_msg=array_name)


def test_the_cpp_reader_is_short() -> None:
    assert len(READER.read_text().splitlines()) <= 60


def test_the_cpp_reader_says_what_is_missing(reader: Path, tmp_path: Path) -> None:
    export_raw(all_codes(), tmp_path / "raw")
    done = subprocess.run([str(reader), str(tmp_path / "raw"), "none"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "no array none" in done.stderr


def test_an_export_does_not_go_into_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match=r"`export_raw\(folder=...\)` should not exist yet, got"):
        export_raw(all_codes(), tmp_path)


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    codes = all_codes()
    broken = Golden(codes.arrays, {"name": b"not text"})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        export_raw(broken, tmp_path / "raw")
    assert list(tmp_path.iterdir()) == []


def test_the_command_exports_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = ONE_OF_EACH_FORMAT[0]
    assert main(["fixtures", "export", name, "--raw", str(tmp_path / "raw")]) == 0
    assert main(["fixtures", "export", name, "--safetensors", str(tmp_path / "x.safetensors")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "x.safetensors"]
    assert main(["fixtures", "export", name, "--raw", str(tmp_path / "raw")]) == 2
    assert "should not exist yet" in capsys.readouterr().err
    assert main(["fixtures", "show"]) == 0
    assert capsys.readouterr().out.splitlines() == list(packaged_names())
    assert main(["fixtures", "show", name]) == 0
    shown = capsys.readouterr().out
    golden = packaged_golden(name)
    for array in golden.arrays:
        assert f"  {array} " in shown
    assert f"content_sha256: {golden.attributes['content_sha256']}" in shown
    assert f"{golden['margin'][np.isfinite(golden['margin'])][0]:.6g}" in shown

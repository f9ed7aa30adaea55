"""Making fixtures: nothing is overwritten unasked, a stopped run goes on, and other machines agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.golden.batch import make_set
from dsa_crosscheck.compare.golden.certify import float64_limits
from dsa_crosscheck.compare.golden.contents import Contents, margins
from dsa_crosscheck.compare.golden.from_candidate import make_candidate_golden
from dsa_crosscheck.compare.golden.large import make_large
from dsa_crosscheck.compare.golden.make import make_golden
from dsa_crosscheck.fixtures.golden.catalogue import LARGE_RECIPES, RECIPES, recipe
from dsa_crosscheck.fixtures.golden.difference import differences
from dsa_crosscheck.fixtures.golden.golden import Golden, load_golden
from dsa_crosscheck.fixtures.golden.hashing import content_hash
from dsa_crosscheck.fixtures.golden.manifest import entry_of, read_manifest
from dsa_crosscheck.fixtures.golden.packaged import packaged_folder, packaged_golden
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.reference.conventions import Conventions

SMALL = "sglang-v4-fp4.exact.exact-integers"
OTHER = "sglang-v4-bf16.exact.zeros"
FRACTIONAL = ("deepseek-v32.fp8.gaussian", "sglang-v4-fp8.fp8.gaussian", "deepseek-v4.fp4.gaussian")


@pytest.mark.parametrize("name", [r.name for r in RECIPES])
def test_recipes_come_back_from_their_record(name: str) -> None:
    made = recipe(name)
    assert Recipe.from_record(made.record()) == made
    assert packaged_golden(name).attributes["recipe"] == made.record()


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    recipes = [recipe(SMALL), recipe(OTHER)]
    calls = count()

    def stops_at_the_second(made: Recipe) -> Golden:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return make_golden(made)

    with pytest.raises(KeyboardInterrupt):
        make_set(recipes, tmp_path, maker=stops_at_the_second)
    assert list(read_manifest(tmp_path)) == [SMALL]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", f"{SMALL}.nc"]
    told: list[str] = []
    assert make_set(recipes, tmp_path, progress=told.append) == {SMALL: "kept", OTHER: "made"}
    assert told == [f"1 of 2: {SMALL}", f"2 of 2: {OTHER}"]
    assert make_set(recipes, tmp_path) == {SMALL: "kept", OTHER: "kept"}
    assert read_manifest(tmp_path) == {name: entry_of(load_golden(tmp_path / f"{name}.nc")) for name in (SMALL, OTHER)}


def test_nothing_is_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_set([recipe(SMALL)], tmp_path)
    path = tmp_path / f"{SMALL}.nc"
    other = make_golden(replace(recipe(SMALL), seed=1))
    for content in (b"mine", b""):
        path.write_bytes(content)
        assert main(["fixtures", "make", SMALL, "--folder", str(tmp_path)]) == 2
        assert "`--regenerate` replaces it" in capsys.readouterr().err
        assert path.read_bytes() == content
    path.unlink()
    changed = make_set([recipe(SMALL)], tmp_path, maker=lambda _: other)
    assert changed == {SMALL: "made"}
    with pytest.raises(ValueError, match="is not this recipe's fixture as made; `--regenerate` replaces it"):
        make_set([recipe(SMALL)], tmp_path)
    assert content_hash(load_golden(path).arrays) == content_hash(other.arrays)
    outcome = make_set([recipe(SMALL)], tmp_path, regenerate=True)
    assert outcome[SMALL].startswith("rewritten: inputs.pooled[0, 0]: should be ")
    assert make_set([recipe(SMALL)], tmp_path) == {SMALL: "kept"}


def test_a_file_of_another_hash_than_the_manifest_is_in_the_way(tmp_path: Path) -> None:
    """Whole, of the same recipe, and yet not what was made."""
    make_set([recipe(SMALL)], tmp_path)
    golden = load_golden(tmp_path / f"{SMALL}.nc")
    moved = golden.arrays["scores"].values + 1.0
    wrong = Golden({**golden.arrays, "scores": replace(golden.arrays["scores"], values=moved)}, golden.attributes)
    (tmp_path / f"{SMALL}.nc").unlink()
    manifest = (tmp_path / "manifest.json").read_text()
    make_set([recipe(SMALL)], tmp_path, maker=lambda _: wrong)
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ValueError, match="`--regenerate` replaces it"):
        make_set([recipe(SMALL)], tmp_path)


def test_only_attributes_changed_keeps_every_hash(tmp_path: Path) -> None:
    make_set([recipe(SMALL)], tmp_path)
    before = read_manifest(tmp_path)[SMALL]

    def newer(made: Recipe) -> Golden:
        golden = make_golden(made)
        return Golden(golden.arrays, {**golden.attributes, "version": "9.9"})

    assert make_set([recipe(SMALL)], tmp_path, regenerate=True, maker=newer) == {SMALL: "rewritten: attributes only"}
    after = read_manifest(tmp_path)[SMALL]
    assert after["attributes"]["version"] == "9.9"
    assert (after["arrays"], after["content_sha256"]) == (before["arrays"], before["content_sha256"])


def copy_of(names: tuple[str, ...], folder: Path) -> dict[str, bytes]:
    """Committed fixtures in a folder with the whole manifest; the bytes of what is there."""
    for name in (*(f"{name}.nc" for name in names), "manifest.json"):
        shutil.copy(packaged_folder() / name, folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "flags",
    [
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "--xla_backend_optimization_level=0 --xla_cpu_multi_thread_eigen=false",
    ],
)
def test_other_threads_and_compiler_flags_give_the_same_fixtures(flags: str, tmp_path: Path) -> None:
    before = copy_of(FRACTIONAL, tmp_path)
    script = Path(sysconfig.get_path("scripts")) / "dsa-crosscheck"
    command = [sys.executable, str(script), "fixtures", "make", *FRACTIONAL, "--folder", str(tmp_path), "--regenerate"]
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **threads, "XLA_FLAGS": flags}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name}: unchanged" for name in FRACTIONAL]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def butterflies(x: np.ndarray, matrix: np.ndarray, divisor: np.float64) -> np.ndarray:
    """The transform in numpy, added pair by pair; ``matrix`` tells the order of its rows."""
    out, stride = np.asarray(x, np.float64), 1
    while stride < x.shape[-1]:
        pairs = out.reshape(*x.shape[:-1], -1, 2, stride)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        out = np.stack([low + high, low - high], axis=-2).reshape(x.shape)
        stride *= 2
    natural = [int(np.flatnonzero((natural_rows(x.shape[-1]) == row).all(axis=1))[0]) for row in matrix]
    return out[..., natural] / divisor


def natural_rows(n: int) -> np.ndarray:
    rows = np.ones((1, 1))
    while rows.shape[0] < n:
        rows = np.block([[rows, rows], [rows, -rows]])
    return rows


def scores_backwards(
    query: np.ndarray, weights: np.ndarray, block: np.ndarray, *, relu: bool, chain: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Scores in numpy, channels and heads added from the last to the first."""
    assert relu
    assert not chain
    product = np.zeros((query.shape[0], query.shape[1], block.shape[0]))
    for dim in reversed(range(query.shape[2])):
        product = product + query[:, :, dim, None] * block[:, dim]
    product = np.maximum(product, 0.0)
    values = np.zeros((query.shape[0], block.shape[0]))
    magnitude = values
    for head in reversed(range(query.shape[1])):
        values = values + weights[:, head, None] * product[:, head]
        magnitude = magnitude + np.abs(weights[:, head, None]) * product[:, head]
    return values, magnitude


@pytest.fixture
def numpy_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sums of the reference in numpy and in other orders, and what is left of JAX uncompiled."""
    monkeypatch.setattr("dsa_crosscheck.reference.hadamard._transform", butterflies)
    monkeypatch.setattr("dsa_crosscheck.reference.score._score_block", scores_backwards)
    with jax.disable_jit():
        yield


@pytest.mark.usefixtures("numpy_path")
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("deepseek-v32.fp8.gaussian", "trace.scores"),
        ("sglang-v4-fp8.fp8.gaussian", "scores"),
        ("sglang-v4-fp8.fp8.gaussian", "key.rotated"),
        ("sglang-v4-bf16.fp4.spread", "query.rotated"),
    ],
)
def test_numpy_in_another_order_gives_the_same_fixture(name: str, array: str, tmp_path: Path) -> None:
    """Bits of float64 do differ, so that equality would have been too much to ask; codes and bytes don't."""
    before = copy_of((name,), tmp_path)
    golden, again = load_golden(tmp_path / f"{name}.nc"), make_golden(recipe(name))
    moved = {difference.array for difference in differences(golden.arrays, again.arrays)}
    assert array in moved
    assert {golden.arrays[other].logical_dtype for other in moved} == {"float64"}
    assert make_set([recipe(name)], tmp_path, regenerate=True) == {name: "unchanged"}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_limits_are_a_few_ulp() -> None:
    """Wide enough for another order of summation, too narrow for one float32 rounding anywhere."""
    golden = packaged_golden("sglang-v4-fp8.fp8.gaussian")
    limits = float64_limits(Contents(golden.inputs, golden.conventions))
    wide = {name for name, array in golden.arrays.items() if array.logical_dtype == "float64"}
    assert set(limits) == wide
    for name, limit in limits.items():
        values = golden[name]
        assert limit.shape == values.shape, name
        finite = np.isfinite(values)
        assert limit.max() < 1e-11 * np.abs(values[finite]).max(), name
        single = values[finite].astype(np.float32).astype(np.float64)
        assert (np.abs(single - values[finite]) > limit[finite]).any(), name


def test_a_rounded_stage_must_be_equal() -> None:
    """A last bit of float64 moves a bfloat16 number by a whole step, or where no boundary is near not at all."""
    golden = packaged_golden("deepseek-v4.fp4.gaussian")
    limits = float64_limits(Contents(golden.inputs, golden.conventions))
    for stage in ("key.normed", "key.roped", "key.rotated", "query.roped", "query.rotated"):
        assert (limits[stage] == 0).mean() > 0.99, stage
        operand, _, name = stage.partition(".")
        assert (limits[f"{operand}.unrounded_{name}"] > 0).all(), stage
    assert "trace.scores" not in limits
    assert "margin" not in limits


def test_margin_is_of_the_kth_and_the_next() -> None:
    scores = np.array([[3.0, 1.0, 2.5, -np.inf], [1.0, 1.0, 1.0, 0.0], [1.0, -np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(margins(scores, np.array([3, 4, 1], np.int32), 2, "last"), [1.5, 0.0, np.inf])


class Unrepeatable(ReferenceCandidate):
    """Right the first time it scores, and a last bit off every second time."""

    name = "unrepeatable"

    def __init__(self, conventions: Conventions | None) -> None:
        super().__init__(conventions)
        self.calls = count()

    def score(self, *arguments: torch.Tensor) -> torch.Tensor:
        scores = super().score(*arguments)
        if next(self.calls) % 2:
            scores = torch.nextafter(scores, torch.tensor(float("inf")))
        return scores


class Wrong(ReferenceCandidate):
    """The same wrong scores every time."""

    name = "wrong"

    def score(self, *arguments: torch.Tensor) -> torch.Tensor:
        return super().score(*arguments) * 1.01


def test_a_candidate_that_is_not_repeatable_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make = ["fixtures", "make", "sglang-v4-fp8.fp8.gaussian", "--folder", str(tmp_path), "--candidate"]
    for candidate, line in (("Unrepeatable", "repeat: scores REFUSED"), ("Wrong", "scores SCALE_ONLY")):
        assert main([*make, f"{__name__}:{candidate}"]) == 2
        error = capsys.readouterr().err
        assert "should pass every check on sglang-v4-fp8.fp8.gaussian, got " in error
        assert line in error
    assert list(tmp_path.iterdir()) == []


def test_a_repeatable_candidate_leaves_its_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "sglang-v4-fp8.fp8.gaussian"
    assert main(["fixtures", "make", name, "--folder", str(tmp_path), "--candidate", "emulated"]) == 0
    golden = load_golden(tmp_path / f"{name}.nc")
    assert golden.attributes["candidate"] == "emulated"
    held = {array for array in golden.arrays if array.startswith("candidate.")}
    assert held == {f"candidate.{part}" for part in ("cache", "query.codes", "query.weights", "scores", "selection")}
    slots = golden["inputs.slots"]
    page, offset = np.divmod(slots, golden.geometry.page_size)
    assert (golden["candidate.cache"][page, offset * 128] == golden["cache"][page, offset * 128]).mean() > 0.9
    seen = np.arange(golden["scores"].shape[1]) < golden["lengths"][:, None]
    off = np.abs(golden["candidate.scores"][seen] - golden["scores"][seen])
    assert (off <= golden.bounds["ieee-fp32"][seen]).all()
    capsys.readouterr()
    assert main(["fixtures", "verify", "--folder", str(tmp_path)]) == 0


def test_a_candidate_needs_a_folder_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fixtures", "make", "--candidate", "emulated"]) == 2
    assert "`--folder` is needed with `--candidate`" in capsys.readouterr().err


def test_a_candidate_with_nothing_to_repeat_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class EncodeOnly:
        name = "encode only"

        def __init__(self, conventions: Conventions) -> None:
            self.conventions = conventions
            self.encode_query = ReferenceCandidate(conventions).encode_query

    monkeypatch.setattr(
        "dsa_crosscheck.compare.golden.from_candidate.load", lambda _, conventions: EncodeOnly(conventions)
    )
    with pytest.raises(ValueError, match="should have `score` or `select`, which are repeated"):
        make_candidate_golden(recipe(SMALL), "anything")


def test_large_fixtures_are_made_once(tmp_path: Path) -> None:
    told: list[str] = []
    recipes = [recipe(SMALL), recipe(OTHER)]
    first = make_large(recipes[:1], tmp_path, told.append)
    made = first[SMALL].stat().st_mtime_ns
    both = make_large(recipes, tmp_path, told.append)
    assert told == [f"1 of 1: {SMALL}", f"1 of 2: {SMALL}, cached", f"2 of 2: {OTHER}"]
    assert both[SMALL].stat().st_mtime_ns == made
    for name, path in both.items():
        assert path.stem == content_hash(load_golden(path).arrays)
        assert load_golden(path).name == name
    both[SMALL].unlink()
    assert make_large(recipes, tmp_path, told.append)[SMALL].is_file()
    assert told[-2:] == [f"1 of 2: {SMALL}", f"2 of 2: {OTHER}, cached"]


def test_another_recipe_of_the_same_name_is_another_fixture(tmp_path: Path) -> None:
    first = make_large([recipe(SMALL)], tmp_path)[SMALL]
    second = make_large([replace(recipe(SMALL), seed=5)], tmp_path)[SMALL]
    assert first != second


def test_large_recipes_are_full_size() -> None:
    for made in LARGE_RECIPES:
        g = made.geometry
        assert (g.heads, g.head_dim, g.page_size, g.topk) == (64, 128, 64, 512)
        assert {g.topk - 1, g.topk, g.topk + 1} <= set(made.visible)
    assert len({made.name for made in LARGE_RECIPES}) == len(LARGE_RECIPES)


def test_large_takes_only_its_own_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fixtures", "make", "--large", SMALL]) == 2
    assert "`NAME` should be one of" in capsys.readouterr().err
    assert main(["fixtures", "make", "--large", "--regenerate"]) == 2
    assert "`--large` should be given without" in capsys.readouterr().err


@pytest.mark.slow
def test_a_large_fixture_is_made_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = LARGE_RECIPES[0].name
    assert main(["fixtures", "make", "--large", name, "--folder", str(tmp_path)]) == 0
    path = capsys.readouterr().out.strip().removeprefix(f"{name}: ")
    assert main(["fixtures", "verify", path]) == 0

"""Right implementations pass the whole comparison, and what a report holds."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from candidates import Altered, case, judge, right
from read_faults import FAULTS

from dsa_crosscheck.compare import Report, Verdict
from dsa_crosscheck.compare.candidates.kernels import Emulated
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.fixtures.cases import CASES, build_case
from dsa_crosscheck.reference.presets import PRESETS

KERNELS = ("sglang-v4-fp8", "sglang-v4-bf16", "sglang-v4-fp4")
PASSED = (Verdict.IDENTICAL, Verdict.TIE, Verdict.WITHIN_BOUND)
LINES = ["pool", "key scales", "key codes", "cache bytes", "query codes", "head weights", "scores", "selection"]


def passes(candidate: object, preset: str, name: str, context: int, rows: int) -> Report:
    """The report of a candidate that should agree; k is a quarter of the keys or less."""
    geometry = PRESETS[preset].geometry
    keys = context // geometry.compress_ratio
    inputs = build_case(name, context=context, rows=rows, topk=min(geometry.topk, keys // 4), geometry=geometry)
    report = judge(inputs, candidate, preset=preset)
    assert report.verdict in PASSED, report
    assert report.first_fault is None
    assert all(r.verdict in PASSED for r in report.stages)
    assert report.selection is not None
    assert report.selection.overlap_min > 0.9
    return report


@pytest.mark.parametrize("preset", KERNELS)
@pytest.mark.parametrize("name", CASES)
def test_emulated_kernels_pass(preset: str, name: str) -> None:
    contexts = (512, 8192) if name == "captured-text" else (515, 4096)
    candidate = Emulated(PRESETS[preset].conventions)
    for context in contexts:
        passes(candidate, preset, name, context, rows=6)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CASES)
def test_unfused_path_passes(preset: str, name: str) -> None:
    if name == "captured-text" and PRESETS[preset].geometry.compress_ratio == 1:
        pytest.skip("the text was captured with one key per four tokens")
    candidate = Unfused(PRESETS[preset].conventions)
    passes(candidate, preset, name, 1031, rows=6)


@pytest.mark.slow
@pytest.mark.parametrize("context", [16384, 32768, 65536, 131072])
@pytest.mark.parametrize("preset", KERNELS)
@pytest.mark.parametrize("name", sorted(set(CASES) - {"captured-text"}))
def test_emulated_kernels_pass_at_length(preset: str, name: str, context: int) -> None:
    passes(Emulated(PRESETS[preset].conventions), preset, name, context, rows=4)


@pytest.mark.parametrize("context", [1, 3, 4, 5, 7])
def test_hardly_any_keys_decide_nothing(context: int) -> None:
    report = judge(case(context=context, topk=1), Emulated(None))
    assert report.verdict is Verdict.VACUOUS
    assert report.selection is not None
    assert (report.selection.overlap_min, report.selection.verdict) == (1.0, Verdict.VACUOUS)


def test_rows_are_optional() -> None:
    inputs = case(context=512)
    none = {name: getattr(inputs, name)[:0] for name in ("query", "gate", "query_positions", "request_of_row")}
    report = judge(type(inputs)(**{**vars(inputs), **none}), right())
    assert report.verdict is Verdict.VACUOUS
    assert {r.stage: r.verdict for r in report.stages}["key codes"] in PASSED
    assert str(report)


def test_equal_scores_decide_nothing() -> None:
    inputs = case(context=512)
    silent = type(inputs)(**{**vars(inputs), "gate": np.zeros_like(inputs.gate)})
    report = judge(silent, right())
    assert report.verdict is Verdict.VACUOUS
    assert "all scores of every row are equal" in str(report)


def test_lines_follow_the_data() -> None:
    report = judge(case(), right())
    assert [r.stage for r in report.stages] == [*LINES, "end to end"]
    elements = {r.stage: r.elements for r in report.stages}
    keys, head_dim, rows, heads = 512 + 65 + 1, 128, 8, 64
    assert elements["key scales"] == keys
    assert elements["key codes"] == keys * head_dim
    assert elements["query codes"] == rows * heads * head_dim
    assert elements["head weights"] == rows * heads
    assert (report.candidate, report.conventions, report.bound) == ("unfused", "sglang-v4-fp8", "ieee-fp32")
    assert report.error["calc_diff"] < 1e-9
    assert 10 < report.noise.snr_db < 60
    assert 0 < report.noise.overlap_min <= report.noise.overlap_mean < 1


def test_missing_methods_are_named_and_not_judged() -> None:
    report = judge(case(), Altered(right(), pool=None, encode_query=None, select=None))
    assert report.not_offered == ("pool", "encode_query", "select")
    assert report.verdict in PASSED
    assert report.selection is None
    assert json.loads(report.to_json())["selection"] is None
    assert "not offered by the candidate: pool, encode_query, select" in str(report)


def test_the_seed_changes_the_result_and_repeating_does_not() -> None:
    first, second = judge(case(), right()).to_dict(), judge(case(), right()).to_dict()
    assert first == second
    assert first != judge(case(seed=1), right()).to_dict()


def failing(**options: object) -> Report:
    """A report with everything in it: a fault, swaps, a case, a replay line, infinite numbers."""
    candidate = Altered(right(), store_keys=FAULTS["one key not stored"].change, score=FAULTS["no ReLU"].change)
    info = {"name": "gaussian", "keys": np.int64(512), "rows": 8, "noise": np.float32(0.5)}
    return judge(case(), candidate, case=info, **options)


def test_json_schema() -> None:
    report = json.loads(failing(replay="dsa-crosscheck compare", max_mismatches=3).to_json())
    assert report["verdict"] == "VIOLATION"
    assert report["first_fault"] == "key scales"
    assert [s["stage"] for s in report["stages"]] == [*LINES, "end to end"]
    for stage in report["stages"]:
        assert {"stage", "verdict", "elements", "differing", "worst", "bound"} <= stage.keys()
        assert isinstance(stage["elements"], int)
        assert Verdict(stage["verdict"])
    assert {"overlap_mean", "overlap_min", "verdict"} <= report["selection"].keys()
    assert len(report["selection"]["swaps"]) == 3 < report["selection"]["swap_count"]
    assert {"overlap_mean", "overlap_min", "snr_db"} <= report["noise"].keys()
    assert {"python", "numpy", "jax", "torch", "dsa-crosscheck"} <= report["environment"].keys()
    assert report["case"]["keys"] == 512
    assert report["replay"] == "dsa-crosscheck compare"


def test_dataset_survives_a_file(tmp_path: Path) -> None:
    report = failing()
    dataset = report.to_dataset()
    dataset.to_netcdf(tmp_path / "report.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "report.nc", engine="h5netcdf") as read:
        assert list(read.stage.values) == [r.stage for r in report.stages]
        assert list(read.verdict.values) == [r.verdict.value for r in report.stages]
        assert read.differing.sel(stage="scores") == report.stages[LINES.index("scores")].differing
        assert np.isnan(read.bound.sel(stage="key codes"))
        assert read.attrs["verdict"] == "VIOLATION"
        assert read.attrs["first_fault"] == "key scales"
        assert read.attrs["selection_overlap_min"] == pytest.approx(report.selection.overlap_min)  # type: ignore[union-attr]


@pytest.mark.parametrize("passing", [True, False])
def test_text(passing: bool) -> None:
    replay = shlex.join(["dsa-crosscheck", "compare", "--case", "a file of some name.nc", *["--rows", "12345"] * 12])
    report = judge(case(), right(), replay=replay) if passing else failing(replay=replay)
    text = str(report)
    assert max(map(len, text.split("\n"))) <= 100
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in text.split("\n"))
    assert f"verdict: {report.verdict.value}" in text
    assert all(r.stage in text for r in report.stages)
    assert ("FIRST FAULT: key scales at req 0 key 7 (1:7)" in text) != passing
    assert ("swapped keys, end to end (20 of" in text) != passing
    command = text.split("replay: ")[1].replace("\\\n", "")
    assert shlex.split(command) == shlex.split(replay)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "sglang"}, r"`preset` should be one of \('deepseek-v32', .*got 'sglang'"),
        ({"bound": "exact"}, r"`bound` should be one of \('ieee-fp32', .*got 'exact'"),
        ({"max_mismatches": -1}, r"`crosscheck\(max_mismatches=...\)` should not be negative, got -1"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge(case(), right(), **options)  # type: ignore[arg-type]


def test_candidate_needs_a_method_and_conventions() -> None:
    nothing = Altered(right(), **dict.fromkeys(("pool", "store_keys", "encode_query", "score", "select")))
    with pytest.raises(ValueError, match=r"`crosscheck\(candidate=...\)` should have at least one of .*'pool'"):
        judge(case(), nothing)
    undeclared = right()
    undeclared.conventions = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"`crosscheck\(preset=...\)` is needed: 'unfused' declares no Conventions"):
        judge(case(), undeclared)

"""``dsa-crosscheck study cost``: times, bytes and the overlap of the very selection that was timed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from dsa_crosscheck.compare.candidates.registry import CandidateError
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.studies import cost
from dsa_crosscheck.compare.studies.cost_run import STAGES, contender, serving_conventions
from dsa_crosscheck.compare.studies.cost_summary import summarise
from dsa_crosscheck.compare.studies.cost_text import milliseconds
from dsa_crosscheck.compare.studies.device_results import cost_records
from dsa_crosscheck.compare.studies.families import family_of
from dsa_crosscheck.compare.studies.formats import STORED
from dsa_crosscheck.reference.conventions import Conventions

SLEEP = 0.05
RECORD = {"candidate": "cuda", "format": "bf16", "stage": "score", "rows": 64, "keys": 8192, "seconds": 2.3e-5}


def options(tmp_path: Path, **changed: object) -> argparse.Namespace:
    values = {
        "candidate": "emulated,unfused",
        "family": "gaussian",
        "context": 1024,
        "rows": 3,
        "topk": None,
        "repeats": 2,
        "seed": 0,
        "record": None,
        "commit": None,
        "page": [],
        "out": None,
        "results": tmp_path / "absent",
    }
    return argparse.Namespace(**values | changed)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    return cost.run(options(tmp_path_factory.mktemp("cost")))


def test_every_stage_is_timed_and_every_variable_described(dataset: xr.Dataset) -> None:
    assert dict(dataset.sizes) == {"candidate": 2, "format": len(STORED), "stage": 4, "row": 3, "record": 0}
    assert (dataset.seconds > 0).all()
    assert (dataset.seconds_low <= dataset.seconds).all()
    assert (dataset.seconds <= dataset.seconds_high).all()
    for name in cost.DESCRIPTIONS:
        assert dataset[name].attrs["units"]
        assert dataset[name].attrs["long_name"]


def test_bytes_are_those_of_the_layouts(dataset: xr.Dataset) -> None:
    known = {"bf16": 256, "fp8-fp32-scale": 132, "fp8-power-of-two": 132, "fp4-even": 68, "fp4-toward-zero": 68}
    assert dict(zip(dataset.format.values, dataset.record_bytes.values, strict=True)) == known
    np.testing.assert_array_equal(dataset.bytes_per_token, dataset.record_bytes / 4)
    np.testing.assert_array_equal(dataset.read_bytes, dataset.record_bytes * 3 * 256)


def test_finer_formats_keep_more(dataset: xr.Dataset) -> None:
    mean = dataset.overlap_mean
    for name in ("emulated", "unfused"):
        bf16, fp8, fp4 = (float(mean.sel(candidate=name, format=f)) for f in ("bf16", "fp8-fp32-scale", "fp4-even"))
        assert 1 >= bf16 > fp8 > fp4 > 0.7
    # Both compute the same conventions: they may differ by a key at the boundary, not by more.
    assert float(np.abs(mean.sel(candidate="emulated") - mean.sel(candidate="unfused")).max()) < 0.01
    assert (dataset.overlap_worst <= mean).all()
    assert (dataset.overlap_low <= mean).all()
    assert (mean <= dataset.overlap_high).all()


def test_ratios_are_against_the_first(dataset: xr.Dataset) -> None:
    assert (dataset.ratio.sel(candidate="emulated") == 1).all()
    assert (dataset.format_ratio.sel(format="bf16") == 1).all()
    assert (dataset.ratio.sel(candidate="unfused") != 1).all()


class Slow(Unfused):
    """The torch path with a scorer that takes ``SLEEP`` longer, for bf16 alone."""

    name = "slow"

    def __init__(self, conventions: Conventions) -> None:
        super().__init__(conventions)
        if conventions.key.format != "bf16":
            from dsa_crosscheck.compare.call import Unsupported

            raise Unsupported("only bf16")

    def score(self, *arguments: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        import time

        time.sleep(SLEEP)
        return super().score(*arguments)


class Wrong(Unfused):
    """Selects the last keys that a row sees."""

    name = "wrong"

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        return (lengths[:, None] - 1 - torch.arange(topk)).to(torch.int32)


class Broken(Unfused):
    """Fails while it is made."""

    def __init__(self, conventions: Conventions) -> None:
        raise RuntimeError("broken")


def test_a_slow_stage_shows_and_an_absent_format_is_nan(tmp_path: Path) -> None:
    dataset = cost.run(options(tmp_path, candidate=f"unfused,{__name__}:Slow", context=512, rows=2))
    slow = dataset.sel(candidate=f"{__name__}:Slow")
    extra = slow.seconds - dataset.seconds.sel(candidate="unfused")
    assert float(slow.seconds.sel(format="bf16", stage="score")) >= SLEEP
    assert float(extra.sel(format="bf16", stage="score")) > 0.5 * SLEEP
    assert float(slow.ratio.sel(format="bf16")) > 1
    others = slow.sel(format=[f for f in STORED if f != "bf16"])
    assert others.seconds.isnull().all()
    assert others.overlap_mean.isnull().all()
    assert f"{__name__}:Slow" in cost.render(dataset)


def test_overlap_is_of_the_selection_that_was_timed(tmp_path: Path) -> None:
    dataset = cost.run(options(tmp_path, candidate=f"{__name__}:Wrong", repeats=1))
    # The last quarter of the keys holds about a quarter of the best.
    assert float(dataset.overlap_mean.max()) < 0.4


def test_candidates_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="does not load: RuntimeError: broken"):
        cost.run(options(tmp_path, candidate=f"{__name__}:Broken"))
    with pytest.raises(CandidateError, match=r"should be one of"):
        cost.run(options(tmp_path, candidate="no-such"))
    with pytest.raises(ValueError, match="`--candidate` should name something, with commas and once each"):
        cost.run(options(tmp_path, candidate="unfused,unfused"))
    with pytest.raises(CandidateError, match="should do one of the formats"):
        cost.run(options(tmp_path, candidate=f"{__name__}:Nothing"))


class Nothing(Unfused):
    """Supports no format."""

    def __init__(self, conventions: Conventions) -> None:
        from dsa_crosscheck.compare.call import Unsupported

        raise Unsupported("nothing")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"repeats": 0}, "`--repeats` should be at least 1, got 0"),
        ({"family": "no-such"}, "`--family` should be one of"),
        ({"topk": 512}, r"`--context` should let a row see more than k=512 keys, got 1024"),
    ],
)
def test_options_are_checked(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost.run(options(tmp_path, **changed))


@pytest.mark.parametrize("format_name", STORED)
def test_contenders_are_timed_again_with_the_same_result(format_name: str) -> None:
    inputs = family_of("gaussian").build(512, 2, 0)
    one = contender("emulated", format_name, inputs)
    assert one is not None
    first, second = one.time(), one.time()
    assert len(first.seconds) == len(STAGES)
    np.testing.assert_array_equal(first.selection, second.selection)


def test_serving_conventions_fold_only_single_scales() -> None:
    where = {name: serving_conventions(name).query_scale_in for name in STORED}
    assert where["bf16"] is None
    assert where["fp8-fp32-scale"] == where["fp8-power-of-two"] == "weights"
    assert where["fp4-even"] == where["fp4-toward-zero"] == "record"


def test_device_records_are_shown(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps({"device": "a GPU", "cost": [RECORD]}))
    dataset = cost.run(options(tmp_path, candidate="unfused", context=512, rows=2, repeats=1, results=tmp_path))
    assert dataset.sizes["record"] == 1
    assert dataset.device_seconds.item() == RECORD["seconds"]
    shown = cost.render(dataset)
    assert "recorded on devices" in shown
    assert "a GPU" in shown
    assert "0.023" in shown
    (tmp_path / "bench.json").write_text(json.dumps({"device": "a GPU", "cost": [RECORD | {"seconds": -1.0}]}))
    with pytest.raises(ValueError, match=r"`bench.json: cost\[0\].seconds` should be positive, got -1.0"):
        cost_records(tmp_path)


def test_summaries_leave_out_rows_that_select_everything(dataset: xr.Dataset) -> None:
    values = np.full((2, len(STORED), 3), np.nan)
    values[0] = [0.5, 1.0, np.nan]
    got = summarise(dataset.assign(overlap=(("candidate", "format", "row"), values)))
    assert (got.overlap_mean[0] == 0.75).all()
    assert (got.overlap_worst[0] == 0.5).all()
    for name in ("overlap_mean", "overlap_low", "overlap_high", "overlap_worst"):
        assert got[name][1].isnull().all()


def test_text_fits_and_says_what_is_lost(dataset: xr.Dataset) -> None:
    text = cost.render(dataset)
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "…" not in text
    assert "fp4-even: 27% of bf16's bytes, loses 0." in text
    assert "say nothing about a GPU" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(float("nan"), "-"), (2.3e-5, "0.023"), (0.0123, "12.30"), (1.5, "1,500")]
)
def test_milliseconds(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_command_writes_dataset_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["study", "cost", "--candidate", "unfused", "--context", "512", "--rows", "2", "--repeats", "1"]
    assert main([*small, "--out", str(tmp_path / "cost.nc"), "--json", str(tmp_path / "cost.json")]) == 0
    assert "dsa-crosscheck study cost" in capsys.readouterr().out
    with xr.open_dataset(tmp_path / "cost.nc", engine="h5netcdf") as written:
        assert written.attrs["study"] == "cost"
        assert "--candidate unfused" in written.attrs["command"]
    assert json.loads((tmp_path / "cost.json").read_text())["attrs"]["repeats"] == 1
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    assert main([*small, "--out", str(tmp_path / "report")]) == 0
    html = (tmp_path / "report" / "index.html").read_text()
    assert "unfused fp4-even: overlap" in html
    assert "stored bytes a raw token" in html

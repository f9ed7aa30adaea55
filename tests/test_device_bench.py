"""The GPU bench without a GPU: cells with stand-ins for the timer, records, tables, and what the commands refuse."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray as xr

from dsa_crosscheck.compare import cli
from dsa_crosscheck.compare.device import accumulator, bench, cell, memory, record
from dsa_crosscheck.compare.device.batches import ScoreShape, SelectShape, StoreShape
from dsa_crosscheck.compare.device.contenders import contenders_named
from dsa_crosscheck.compare.device.contenders import cuda as cuda_contender
from dsa_crosscheck.compare.device.contenders import unfused as unfused_contender
from dsa_crosscheck.compare.device.stages import STAGES, Stage
from dsa_crosscheck.compare.device.table import render_record
from dsa_crosscheck.compare.device.verdicts import failure, failures
from dsa_crosscheck.compare.studies import cost_device
from dsa_crosscheck.compare.studies.device_results import cost_records, memory_records

SCORE = STAGES[0]
HEAD = {"device": "a GPU", "driver": "1", "toolkit": "2", "commit": "abc", "date": "2026-01-01", "environment": {}}


class Clock:
    """In place of ``Replay``: calls everything once, then each contender takes its own seconds, turn by turn."""

    made: list[Clock]

    def __init__(self, work: Sequence[Callable[[], object]]) -> None:
        for call in work:
            call()
        self.sets = len(work)
        self.number = len(self.made)
        self.turn = 0
        self.made.append(self)

    def rested_seconds(self) -> float:
        self.turn += 1
        # The machine slows down from turn to turn, for everyone: ratios of one turn don't see it.
        return (1 + self.number) * 1e-6 * self.turn


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    Clock.made = []
    monkeypatch.setattr(cell, "Replay", Clock)
    monkeypatch.setattr(cell, "input_sets", lambda read_bytes: 2)
    return Clock


def test_a_cell_is_timed_in_turns_and_checked(clock: type[Clock]) -> None:
    found = cell.measure(SCORE, "fp8", ScoreShape(2, 192), contenders_named(["cuda", "unfused"]), 1e12, "cpu")
    ours, theirs = found.entries
    assert found.left_out == []
    assert [one.sets for one in clock.made] == [2, 2]
    assert (ours["seconds"], theirs["seconds"]) == pytest.approx((5e-6, 10e-6))
    assert (ours["seconds_low"], ours["seconds_high"]) == pytest.approx((1e-6, 9e-6))
    assert ours["ratio_to"] == {"unfused": pytest.approx(0.5)}
    assert theirs["ratio_to"] == {}
    assert ours["bytes_per_second"] == pytest.approx(ours["bytes"] / 5e-6)
    assert ours["copy_fraction"] == pytest.approx(ours["bytes"] / 5e-6 / 1e12)
    assert ours["flops_per_second"] == pytest.approx(2 * 2 * 192 * 64 * 128 / 5e-6)
    assert 0 < ours["worst_error_over_bound"]["ieee-fp32"] < 1
    assert {k: ours[k] for k in ("candidate", "format", "stage", "rows", "keys", "next_n", "input_sets")} == {
        "candidate": "cuda",
        "format": "fp8",
        "stage": "score",
        "rows": 2,
        "keys": 192,
        "next_n": 1,
        "input_sets": 2,
    }


def test_who_cannot_be_had_is_named_with_the_reason(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)

    def too_large(batch: object) -> None:
        raise torch.OutOfMemoryError("no room\nfor this")

    monkeypatch.setattr(unfused_contender, "score", too_large)
    found = cell.measure(
        SCORE, "fp8", ScoreShape(1, 64), contenders_named(["deepgemm", "cuda", "unfused"]), 1e12, "cpu"
    )
    assert [entry["candidate"] for entry in found.entries] == ["cuda"]
    assert found.entries[0]["ratio_to"] == {}
    assert [entry["candidate"] for entry in found.left_out] == ["deepgemm", "unfused"]
    assert "deep_gemm" in found.left_out[0]["why"]
    assert found.left_out[1]["why"] == "OutOfMemoryError: no room"
    assert (found.left_out[0]["rows"], found.left_out[0]["keys"]) == (1, 64)
    # A format that a contender never had is no loss.
    assert cell.measure(SCORE, "bf16", ScoreShape(1, 64), contenders_named(["deepgemm"]), 1e12, "cpu") == cell.Cell()


def test_our_own_failure_is_not_left_out(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: object) -> None:
        raise TypeError("broken")

    monkeypatch.setattr(unfused_contender, "score", broken)
    found = cell.measure(SCORE, "fp8", ScoreShape(1, 64), contenders_named(["unfused"]), 1e12, "cpu")
    assert found.left_out[0]["why"] == "TypeError: broken"
    monkeypatch.setattr(cuda_contender, "score", broken)
    with pytest.raises(TypeError, match="broken"):
        cell.measure(SCORE, "fp8", ScoreShape(1, 64), contenders_named(["cuda"]), 1e12, "cpu")


def test_unfused_is_left_out_where_its_prediction_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = SCORE.batch("fp8", ScoreShape(1, 64), 0, "cpu")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1000, 2000))
    with pytest.raises(ValueError, match=r"scoring ScoreShape\(.*\) unfused should take [\d,]+ bytes, and 1,000 are"):
        unfused_contender._check_fits(batch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    unfused_contender._check_fits(batch)


@pytest.fixture
def stages(clock: type[Clock], monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """All stages at small shapes, on this CPU, with a contender that is missing."""
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    monkeypatch.setattr(bench, "head", lambda commit: {**HEAD, "commit": commit})
    monkeypatch.setattr(bench, "copy_bytes_per_second", lambda: 4e12)
    original = cell.measure
    monkeypatch.setattr(bench, "measure", lambda *a: original(*a, "cpu"))
    small = {"score": ScoreShape(2, 128, 2), "store": StoreShape(128), "select": SelectShape(2, 300, 32)}
    return [replace(stage, shapes=(small[stage.name],)) for stage in STAGES]


@pytest.fixture
def made(stages: list[Stage]) -> dict[str, Any]:
    """A record of ``stages``."""
    names = ["cuda", "deepgemm", "unfused", "torch"]
    return bench.run_bench(contenders_named(names), "abc", stages)


def test_record_table_and_dataset(made: dict[str, Any], tmp_path: Path) -> None:
    stages = [(e["stage"], e["candidate"]) for e in made["cost"] if e["format"] in ("fp8", "fp32")]
    assert stages == [
        ("score", "cuda"), ("score", "unfused"), ("store", "cuda"), ("store", "unfused"),
        ("select", "cuda"), ("select", "unfused"), ("select", "torch"),
    ]  # fmt: skip
    assert [e["candidate"] for e in made["left_out"]] == ["deepgemm"]
    assert failures(made) == []
    text = render_record(made)
    assert max(len(line) for line in text.splitlines()[4:-1]) <= 100
    assert "…" not in text
    for line in ("2 x 128 x 2", "2 x 300 k 32", "deepgemm score fp8 2 x 128 x 2 left out: "):
        assert line in text
    assert "WRONG" not in text
    (first,) = [
        line.split()
        for line in text.splitlines()
        if line.startswith("unfused") and " fp8 2 x 128 x 2 " in " ".join(line.split())
    ]
    assert first[7] == "10.0"
    assert first[-4] == "0.50"
    assert text.count("ratio: time of cuda (base) over that of this one, in one run") == 3
    words = [line.split() for line in text.splitlines()]
    assert [line[-4] for line in words if line[:3] == ["cuda", "fp8", "2"]] == ["base"]
    record.write(tmp_path / "made.json", made)
    assert len(cost_records(tmp_path)) == len(made["cost"])
    dataset = cost_device.dataset_of(made)
    assert dataset.device_seconds.values.tolist() == [e["seconds"] for e in made["cost"]]
    assert cost_device.render(dataset) == text


def test_what_is_wrong_is_said(made: dict[str, Any]) -> None:
    def altered(stage: str, candidate: str, **changed: object) -> dict[str, Any]:
        other = copy.deepcopy(made)
        for entry in other["cost"]:
            if (entry["stage"], entry["candidate"]) == (stage, candidate):
                entry.update(changed)
                break
        return other

    past_one = {"worst_error_over_bound": {"ieee-fp32": 1.4, "tensor-core-fp8": 0.1}}
    wrong = altered("score", "cuda", **past_one)
    for name in ("cuda", "cuda-mma"):
        wrong["cost"][0]["candidate"] = name
        assert failures(wrong) == [f"{name} score fp8 4 x 128: scores past the ieee-fp32 bound"]
    assert "WRONG" not in render_record(altered("score", "unfused", **past_one))
    nan = {"worst_error_over_bound": {"ieee-fp32": float("nan"), "tensor-core-fp8": float("nan")}}
    for name in ("cuda", "unfused"):
        assert "WRONG" in render_record(altered("score", name, **nan))
    assert failures(altered("store", "cuda", differing=3))[0].endswith("checked bytes differ")
    assert "WRONG" not in render_record(altered("store", "unfused", differing=3))
    assert failures(altered("select", "cuda", wrong_rows=1)) == [
        "cuda select fp32 2 x 300: 1 of 2 checked rows hold other keys"
    ]
    assert failures(altered("select", "cuda", ordered=False)) == [
        "cuda select fp32 2 x 300: keys are not in index order"
    ]
    assert "WRONG" in render_record(altered("select", "torch", wrong_rows=1))
    assert failure(made["cost"][0]) == ""


def test_study_cost_on_a_gpu_writes_the_record(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost_device, "need_gpu", lambda what: None)

    def run_bench(contenders: object, commit: str, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        found = {**made, "commit": commit}
        keep(found)
        return found

    monkeypatch.setattr(cost_device, "run_bench", run_bench)
    target, dataset = tmp_path / "kernels.json", tmp_path / "cost.nc"
    command = ["study", "cost", "--candidate", "cuda,deepgemm", "--commit", "f00", "--record", str(target)]
    assert cli.main([*command, "--out", str(dataset)]) == 0
    assert "commit f00" in capsys.readouterr().out
    assert json.loads(target.read_text()) == {**made, "commit": "f00"}
    with xr.open_dataset(dataset, engine="h5netcdf") as written:
        assert written.sizes["record"] == len(made["cost"])
        assert written.attrs["command"].startswith("dsa-crosscheck study cost --candidate cuda,deepgemm")
    made["cost"][0]["worst_error_over_bound"]["ieee-fp32"] = 2.0
    assert cli.main(command) == 1
    assert "WRONG: cuda score fp8" in capsys.readouterr().out
    made["cost"] = []
    assert cli.main(command) == 3  # nobody could be timed


@pytest.mark.parametrize("finished", [1, 5])
def test_a_stopped_study_cost_leaves_the_cases_that_it_finished(
    stages: list[Stage],
    made: dict[str, Any],
    finished: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, measured = tmp_path / "kernels.json", bench.measure
    target.write_text("the record of another run")
    cases = [(stage.name, kind) for stage in stages for kind in stage.formats]

    def stopped(stage: Stage, kind: str, *rest: Any) -> cell.Cell:
        if (stage.name, kind) == cases[finished]:
            raise KeyboardInterrupt
        return measured(stage, kind, *rest)

    monkeypatch.setattr(bench, "measure", stopped)
    monkeypatch.setattr(cost_device, "need_gpu", lambda what: None)
    monkeypatch.setattr(cost_device, "run_bench", partial(bench.run_bench, stages=stages))
    command = ["study", "cost", "--candidate", "cuda,deepgemm,unfused,torch", "--commit", "abc", "--record"]
    assert cli.main([*command, str(target)]) == 2
    left = json.loads(target.read_text())
    assert list(dict.fromkeys((one["stage"], one["format"]) for one in left["cost"])) == cases[:finished]
    assert [(one["stage"], one["format"]) for one in left["unfinished"]] == cases[finished:]
    assert left["unfinished"][-1] == {"format": "fp32", "stage": "select", "rows": 2, "keys": 300, "k": 32}
    assert left.keys() - made.keys() == {"unfinished"}
    assert len(cost_records(tmp_path)) == len(left["cost"])
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    monkeypatch.setattr(bench, "measure", measured)
    assert cli.main([*command, str(target)]) == 0
    assert json.loads(target.read_text()).keys() == made.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--candidate", "cuda,unfused"),
            "`--candidate` cuda,unfused needs a CUDA GPU that torch can use, and found none",
        ),
        (("--candidate", "cuda,emulated"), "`--candidate` should name, for a GPU, some of"),
        (("--candidate", "cuda", "--context", "512"), "`--context` should not be given for cuda, timed on a GPU"),
        (("--candidate", "cuda", "--context", "8192"), "`--context` should not be given for cuda, timed on a GPU"),
        (
            ("--candidate", "sglang", "--results", "docs/results"),
            "`--results` should not be given for sglang, timed on a GPU",
        ),
        (
            ("--candidate", "torch"),
            "`--candidate` should name torch only beside cuda, cuda-mma, deepgemm or sglang; got 'torch'",
        ),
        (
            ("--candidate", "unfused,torch"),
            "`--candidate` should name torch only beside cuda, cuda-mma, deepgemm or sglang; got 'unfused,torch'",
        ),
        (("--candidate", "unfused", "--commit", "f00"), "`--commit` should not be given for unfused, timed on a CPU"),
        (
            ("--candidate", "unfused", "--record", "a.json"),
            "`--record` should not be given for unfused, timed on a CPU",
        ),
        (("--candidate", "cuda", "--out", "report"), "a report should be of candidates timed on a CPU"),
        (
            ("--candidate", "cuda", "--record", "no/such/a.json"),
            "`--record` should be the path of a file in an existing",
        ),
    ],
)
def test_study_cost_refuses(
    options: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["study", "cost", *options]) == 2
    assert message in capsys.readouterr().err


def test_device_needs_a_gpu_and_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["device", "memory", "--out", str(tmp_path / "a.json")]) == 2
    assert "`device memory` needs a CUDA GPU that torch can use" in capsys.readouterr().err
    assert cli.main(["device", "memory", "--out", str(tmp_path / "no" / "a.json")]) == 2
    assert "`--out` should be the path of a file in an existing folder" in capsys.readouterr().err


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that says it has a GPU with 10 GiB free."""
    monkeypatch.setattr(record, "need_gpu", lambda what: None)
    monkeypatch.setattr(record, "head", lambda commit: {**HEAD, "commit": commit})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10 << 30, 20 << 30))


@pytest.mark.usefixtures("gpu")
def test_device_memory_measures_what_fits_and_predicts_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"peak_bytes": 5, "largest_bytes": 4, "output_bytes": 3}
    monkeypatch.setattr(memory, "measure", lambda *cell: sizes)
    assert cli.main(["device", "memory", "--out", str(tmp_path / "memory.json"), "--commit", "abc"]) == 0
    written = json.loads((tmp_path / "memory.json").read_text())
    assert [(e["path"], e["rows"], e["keys"]) for e in written["memory"]] == [("cuda", *s) for s in memory.SIZES]
    assert [(e["path"], e["rows"], e["keys"]) for e in written["not_run"]] == [("unfused", *s) for s in memory.SIZES]
    # What an H200 took for it, by the figure recorded before there was a prediction.
    assert written["not_run"][0]["predicted_bytes"] == pytest.approx(40_691_249_152, rel=0.002)
    assert written["commit"] == "abc"
    assert {r.peak_bytes for r in memory_records(tmp_path)} == {5}
    assert "not run: predicted" in capsys.readouterr().out


@pytest.mark.usefixtures("gpu")
def test_device_accumulator_records_what_its_module_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(accumulator, "measure", lambda names: [{"candidate": name, "bits": 13} for name in names])
    monkeypatch.setattr(accumulator, "render", lambda records: f"{len(records)} scorers")
    out = tmp_path / "accumulator.json"
    assert cli.main(["device", "accumulator", "--candidate", "cuda,deepgemm", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["accumulator"] == [
        {"candidate": "cuda", "bits": 13},
        {"candidate": "deepgemm", "bits": 13},
    ]
    assert "2 scorers" in capsys.readouterr().out

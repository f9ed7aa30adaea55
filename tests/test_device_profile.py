"""Reading the profiler's table, and refusing what is not one."""

from __future__ import annotations

import csv
import io
import re

import pytest
import torch

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.device import profile
from dsa_crosscheck.compare.device.batches import SelectShape, select_batch
from dsa_crosscheck.compare.device.profiled import CASES, names
from dsa_crosscheck.compare.device.stages import STAGES
from dsa_crosscheck.cuda_impl import build
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

METRICS = {
    "ID": "0",
    "Kernel Name": "void dsa::store_kernel<dsa::Bf16Encoder>(int, long)",
    "gpu__time_duration.sum": "1,234,500",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "71.25",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "4.5",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "1.5",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": "9",
    "launch__grid_size": "132",
    "profiler__replayer_passes": "23",
}


def table(rows: int) -> str:
    """What the profiler prints around and in its table."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerow(METRICS)
    writer.writerow(["ns"] * len(METRICS))
    for _ in range(rows):
        writer.writerow(METRICS.values())
    return "==PROF== Connected\ncase of the workload\n" + buffer.getvalue() + "==PROF== Disconnected\n"


def test_launches_keep_their_metrics() -> None:
    cases = list(names())
    launches = profile.parse(table(len(cases)))
    assert [one["case"] for one in launches] == cases
    assert launches[0]["kernel"] == "void dsa::store_kernel<dsa::Bf16Encoder>"
    assert launches[0]["metrics"]["gpu__time_duration.sum"] == 1234.5
    assert "profiler__replayer_passes" not in launches[0]["metrics"]
    assert profile.waits(launches[0]["metrics"]) == "long scoreboard 4.5, wait 1.5"
    text = profile.render({"launches": launches})
    assert "1234   71" in text
    assert "long scoreboard 4.5" in text


def test_another_number_of_launches_is_refused() -> None:
    with pytest.raises(ValueError, match=f"should see {len(CASES)} launches, one a case, saw 2"):
        profile.parse(table(2))


def test_every_kernel_of_the_cases_is_watched() -> None:
    files = {"score": "score*.cuh", "store": "store.cuh", "select": "topk*.cuh"}
    text = "".join(p.read_text() for stage, *_ in CASES for p in build.KERNELS.glob(files[stage]))
    kernels = set(re.findall(r"__global__[^;{]*?(\w+_kernel)\(", text))
    kernels.remove("score_plan_kernel")  # which runs before the launch that a case watches
    assert kernels == {"score_kernel", "store_kernel", "topk_kernel", "topk_cluster_kernel"}
    for kernel in kernels:
        assert re.fullmatch(profile.WATCHED.removeprefix("regex:"), kernel)


def test_each_selection_is_one_launch_and_long_rows_go_to_a_cluster() -> None:
    shapes = [shape for stage, _, shape in CASES if stage == "select"]
    assert shapes == list(STAGES[-1].shapes)
    needed = kernels_for(torch.device("cpu")).topk_workspace
    assert all(needed(s.rows, s.keys, s.k, 16) == 0 for s in shapes), "a level more is a launch more"
    cut = [s for s in shapes if needed(s.rows, s.keys, s.k, 1) > 0]
    assert cut == [SelectShape(8, 262144, 512), SelectShape(8, 262144, 2048)]
    assert [select_batch("fp32", s, 0, "cpu").bytes for s in cut] == [4 * 8 * (262144 + k + 1) for k in (512, 2048)]


def test_without_a_gpu(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device", "profile", "--out", str(tmp_path / "x.json")]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err

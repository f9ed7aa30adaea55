"""Reading the profiler's table, and refusing what is not one."""

from __future__ import annotations

import csv
import io

import pytest

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.device import profile
from dsa_crosscheck.compare.device.profiled import names

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
    with pytest.raises(ValueError, match="should see"):
        profile.parse(table(2))


def test_without_a_gpu(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device", "profile", "--out", str(tmp_path / "x.json")]) == 2
    assert "needs a CUDA GPU" in capsys.readouterr().err

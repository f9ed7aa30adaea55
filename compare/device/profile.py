"""Our kernels under the profiler: which unit of the GPU each keeps how busy, and what its warps wait for."""

from __future__ import annotations

import csv
import io
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any

import torch

from dsa_crosscheck.compare.device.profiled import names
from dsa_crosscheck.compare.studies.text_table import text_table
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "WarpStateStats", "LaunchStats")
WATCHED = "regex:score_kernel|store_kernel|topk_kernel|topk_cluster_kernel"
WORKLOAD = (sys.executable, "-m", "dsa_crosscheck.compare.device.profiled")
COMMAND = ("ncu", "--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", WATCHED)

COLUMNS = {
    "us": "gpu__time_duration.sum",
    "DRAM": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue": "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
    "ALU": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "FMA": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
}
"""What the table shows, and the profiler's metric for it."""
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
"""Cycles for which a warp waited for a reason, an issued instruction."""
KEPT = re.compile(
    r"sm__cycles_active\.(avg|min|max)|sm__inst_executed_pipe_\w+\.avg\.pct_of_peak_sustained_active|launch__(grid_size|"
    r"block_size|registers_per_thread|shared_mem_per_block_dynamic|waves_per_multiprocessor)"
)
"""Metrics that the record keeps beside those."""
MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


def measure() -> dict[str, Any]:
    """``command`` and, for each launch, its case, kernel and kept metrics: numbers by the profiler's names, the
    duration in microseconds.

    ``ValueError`` without the profiler, or when it fails, with its last lines.
    """
    if shutil.which(COMMAND[0]) is None:
        raise ValueError("`device profile` needs the profiler ncu on PATH, and found none")
    kernels_for(torch.device("cuda"))  # built here: the profiler should not watch a compiler
    command = [*COMMAND, *(word for section in SECTIONS for word in ("--section", section)), *WORKLOAD]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ValueError(f"`device profile`: {shlex.join(command)} failed: {(done.stdout + done.stderr)[-800:]}")
    return {"command": shlex.join([*command[:-3], "python", *WORKLOAD[1:]]), "launches": parse(done.stdout)}


def parse(output: str) -> list[dict[str, Any]]:
    """Launches of the profiler's CSV, in order, which the workload's and the profiler's own lines surround."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    if len(rows) < 2:
        raise ValueError(f"`device profile` should get a table from the profiler, got {output[-800:]!r}")
    head, units, values = rows[0], dict(zip(rows[0], rows[1], strict=True)), rows[2:]
    scale = MICROSECONDS[units[COLUMNS["us"]]]
    cases = list(names())
    if len(values) != len(cases):
        raise ValueError(f"`device profile` should see {len(cases)} launches, one a case, saw {len(values)}")
    launches = []
    for case, row in zip(cases, values, strict=True):
        cells = dict(zip(head, row, strict=True))
        metrics = {name: value for name, text in cells.items() if _kept(name) and (value := _number(text)) is not None}
        metrics[COLUMNS["us"]] *= scale
        kernel = re.sub(r"\(.*", "", cells["Kernel Name"])
        launches.append({"case": case, "kernel": kernel, "metrics": metrics})
    return launches


def render(found: dict[str, Any]) -> str:
    """Microseconds, percent of each unit's peak, and the two longest waits of a warp."""
    lines = []
    for one in found["launches"]:
        metrics = one["metrics"]
        shown = [metrics.get(name) for name in COLUMNS.values()]
        lines.append([one["case"], *("" if v is None else f"{v:.0f}" for v in shown)])
    waiting = [f"{one['case']} waits for {waits(one['metrics'])}" for one in found["launches"]]
    return "\n".join([*text_table(["case", *COLUMNS], lines, labels=1), "", *waiting])


def waits(metrics: dict[str, float]) -> str:
    """The two largest reasons for which a warp did not issue, in cycles an instruction."""
    found = {match.group(1): value for name, value in metrics.items() if (match := STALL.fullmatch(name))}
    found.pop("selected", None)  # no wait: the instruction was issued
    found.pop("not_selected", None)
    most = sorted(found, key=lambda name: -found[name])[:2]
    return ", ".join(f"{name.replace('_', ' ')} {found[name]:.1f}" for name in most)


def _kept(name: str) -> bool:
    return name in COLUMNS.values() or bool(STALL.fullmatch(name) or KEPT.fullmatch(name))


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None

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
WATCHED = "regex:score_kernel|store_kernel|topk_kernel"
WORKLOAD = (sys.executable, "-m", "dsa_crosscheck.compare.device.profiled")
COMMAND = ("ncu", "--clock-control", "none", "--csv", "--page", "raw", "--kernel-name", WATCHED)

COLUMNS = {
    "us": re.compile(r"gpu__time_duration\.sum"),
    "DRAM": re.compile(r"dram__throughput\.avg\.pct_of_peak_sustained_elapsed"),
    "L2": re.compile(r"lts__throughput\.avg\.pct_of_peak_sustained_elapsed"),
    "issue": re.compile(r"(sm__inst_issued|smsp__issue_active)\.avg\.pct_of_peak_sustained_active"),
    "ALU": re.compile(r"sm__inst_executed_pipe_alu\.avg\.pct_of_peak_sustained_active"),
    "FMA": re.compile(r"sm__(inst_executed_)?pipe_fma(_cycles_active)?\.avg\.pct_of_peak_sustained_active"),
    "tensor": re.compile(r"sm__pipe_tensor_cycles_active\.avg\.pct_of_peak_sustained_active"),
}
"""What the table shows, and the profiler's metric for it."""
KEPT = re.compile(
    "|".join(
        [
            r"smsp__average_warps?_(issue|latency_issue)_stalled_\w+_ratio",
            r"smsp__average_warps_issue_stalled_\S+\.ratio",
        ]
        + [
            r"sm__cycles_(active|elapsed)\.\w+",
            r"sm[sp]*__inst_executed(_pipe_\w+)?\.\S+",
            r"sm__pipe_\S+",
            r"launch__\w+",
        ]
        + [pattern.pattern for pattern in COLUMNS.values()]
    )
)
"""Metrics that the record keeps."""


def measure() -> dict[str, Any]:
    """``command`` and, for each launch, its case, kernel and kept metrics (numbers by the profiler's names).

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
    head, values = rows[0], rows[2:]  # the second row holds units
    cases = list(names())
    if len(values) != len(cases):
        raise ValueError(f"`device profile` should see {len(cases)} launches, saw {len(values)}")
    launches = []
    for case, row in zip(cases, values, strict=True):
        cells = dict(zip(head, row, strict=True))
        metrics = {name: _number(text) for name, text in cells.items() if KEPT.fullmatch(name)}
        kernel = re.sub(r"\(.*", "", cells["Kernel Name"])
        launches.append(
            {"case": case, "kernel": kernel, "metrics": {k: v for k, v in metrics.items() if v is not None}}
        )
    return launches


def render(found: dict[str, Any]) -> str:
    """Microseconds, percent of each unit's peak, and the two longest waits of a warp."""
    lines = []
    for one in found["launches"]:
        metrics = one["metrics"]
        shown = [next((v for k, v in metrics.items() if p.fullmatch(k)), None) for p in COLUMNS.values()]
        lines.append([one["case"], *("" if v is None else f"{v:.0f}" for v in shown)])
    waiting = [f"{one['case']} waits for {waits(one['metrics'])}" for one in found["launches"]]
    return "\n".join([*text_table(["case", *COLUMNS], lines, labels=1), "", *waiting])


def waits(metrics: dict[str, float]) -> str:
    """The two largest reasons for which a warp did not issue, in cycles an instruction."""
    found = {
        match.group(1): value
        for name, value in metrics.items()
        if (match := re.search(r"stalled_(\w+?)_(?:per_issue_active|\w*ratio)", name)) and "selected" not in name
    }
    most = sorted(found, key=lambda name: -found[name])[:2]
    return ", ".join(f"{name.replace('_', ' ')} {found[name]:.1f}" for name in most)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None

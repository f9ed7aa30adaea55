"""The cost study as text."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.studies.text_table import text_table

SHORT = ("store", "encode", "score", "select")
"""Heads of the columns of ``cost_run.STAGES``."""


def milliseconds(seconds: float) -> str:
    """Three significant digits or so; ``-`` for NaN."""
    if np.isnan(seconds):
        return "-"
    value = seconds * 1e3
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def render(dataset: xr.Dataset) -> str:
    """A line for each candidate and format, then what was recorded on devices."""
    a = dataset.attrs
    rows = [
        row
        for candidate in dataset.candidate.values
        for row in (_row(dataset.sel(candidate=candidate, format=kind)) for kind in dataset.format.values)
        if row is not None
    ]
    first_candidate, first_format = dataset.candidate.values[0], dataset.format.values[0]
    columns = ["candidate", "format", "B/token", "overlap", "worst", *SHORT, "score x", "total x"]
    lines = [
        f"dsa-crosscheck study cost      family {a['family']}   context {a['context']:,}   keys {a['keys']:,}   "
        f"rows {a['rows']:,}   k {a['topk']:,}   seed {a['seed']}",
        "",
        *text_table(columns, rows, labels=2),
        "",
        f"B/token: stored bytes a raw token; stages: median of {a['repeats']} in ms, in turns within one run",
        f"score x: score time over {first_candidate}'s, same format; total x: all stages over {first_format}'s, same",
        "  candidate; overlap: of the selection that was timed with the exact one, mean and worst row",
        "emulated runs CUDA threads as fibers of a CPU: its times say nothing about a GPU, its bytes do",
        "",
        *findings(dataset),
    ]
    if dataset.sizes["record"]:
        lines += ["", "recorded on devices", "", *_recorded(dataset)]
    return "\n".join(lines)


def _row(one: xr.Dataset) -> list[str] | None:
    if bool(one.seconds.isnull().all()):
        return None
    return [
        str(one.candidate.item()),
        str(one.format.item()),
        f"{float(one.bytes_per_token):g}",
        f"{float(one.overlap_mean):.4f}",
        f"{float(one.overlap_worst):.4f}",
        *(milliseconds(value) for value in one.seconds.values),
        f"{float(one.ratio):.2f}",
        f"{float(one.format_ratio):.2f}",
    ]


def findings(dataset: xr.Dataset) -> list[str]:
    """For each format after the first: what it saves and what it loses, with the first candidate that does it."""
    mean = dataset.overlap_mean
    base = dataset.format.values[0]
    lines = []
    for kind in dataset.format.values[1:]:
        both = mean.sel(format=kind).notnull() & mean.sel(format=base).notnull()
        if not bool(both.any()):
            continue
        candidate = dataset.candidate.values[both.values][0]
        bytes_ratio = float(dataset.bytes_per_token.sel(format=kind) / dataset.bytes_per_token.sel(format=base))
        lost = float(mean.sel(candidate=candidate, format=base) - mean.sel(candidate=candidate, format=kind))
        verb = "loses" if lost >= 0 else "gains"
        lines.append(f"{kind}: {bytes_ratio:.0%} of {base}'s bytes, {verb} {abs(lost):.4f} of overlap ({candidate})")
    return lines


def _recorded(dataset: xr.Dataset) -> list[str]:
    rows = []
    for i in range(dataset.sizes["record"]):
        one = dataset.isel(record=i)
        labels = [str(one[name].item()) for name in ("device", "device_candidate", "device_format", "device_stage")]
        sizes = [f"{int(one[name]):,}" for name in ("device_rows", "device_keys")]
        rows.append([*labels, *sizes, milliseconds(float(one.device_seconds))])
    return text_table(["device", "candidate", "format", "stage", "rows", "keys", "ms"], rows, labels=4)

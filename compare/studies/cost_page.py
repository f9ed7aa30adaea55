"""The cost study as a page: one picture of what a format keeps against what it costs."""

from __future__ import annotations

from typing import Any

import xarray as xr

from dsa_crosscheck.compare.environment import PACKAGES
from dsa_crosscheck.compare.reports.difference import Measure
from dsa_crosscheck.compare.reports.figures import INK, MARKERS, SERIES, svg_of
from dsa_crosscheck.compare.reports.page import Figure, Page, Table
from dsa_crosscheck.compare.studies.cost_summary import REPLICATES, summarise
from dsa_crosscheck.compare.studies.cost_text import findings, milliseconds

__all__ = ["MEASURES", "REPLICATES", "page", "summarise"]

MEASURES = (Measure("overlap_mean", "overlap_low", "overlap_high"), Measure("record_bytes"))


def page(dataset: xr.Dataset) -> Page:
    """The whole study."""
    a = dataset.attrs
    return Page(
        title="What storage formats of index keys cost in bytes and time",
        question="How much of the exact selection does each byte and each millisecond buy?",
        answer=tuple(findings(dataset)),
        figures=(_tradeoff(dataset),),
        tables=tuple(table for table in (_measured(dataset), _recorded(dataset)) if table.rows),
        method=(
            f"Family {a['family']}, {a['context']:,} raw tokens, {a['rows']} query rows, k {a['topk']}, conventions "
            f"{a['conventions']}. The overlap is that of the selection that was timed, with exact float64 scores; its "
            "interval is a bootstrap over rows.",
            f"Times are medians of {a['repeats']} passes after one that warms up; candidates and formats take turns, "
            "and ratios are medians of the ratios within a turn.",
            "The candidate `emulated` runs the CUDA kernels as fibers of a CPU. Its times rank formats on this machine "
            "and say nothing about a GPU; bytes and overlaps do not depend on the machine. Times of a GPU are those in "
            "the table of device records, if there are any.",
        ),
        environment=tuple((name, str(a[name])) for name in ("python", "platform", "cpus", *PACKAGES) if name in a),
        command=str(a["command"]),
    )


def _points(dataset: xr.Dataset) -> list[xr.Dataset]:
    cells = [dataset.sel(candidate=c, format=f) for c in dataset.candidate.values for f in dataset.format.values]
    return [one for one in cells if bool(one.overlap_mean.notnull())]


def _tradeoff(dataset: xr.Dataset) -> Figure:
    candidates, formats = list(dataset.candidate.values), list(dataset.format.values)

    def scatter(axes: Any, horizontal: Any) -> None:
        for one in _points(dataset):
            mean = float(one.overlap_mean)
            error = [[mean - float(one.overlap_low)], [float(one.overlap_high) - mean]]
            kind, candidate = formats.index(one.format.item()), candidates.index(one.candidate.item())
            axes.errorbar(
                horizontal(one),
                mean,
                yerr=error,
                color=SERIES[kind % len(SERIES)],
                marker=MARKERS[kind % len(MARKERS)],
                fillstyle="full" if candidate == 0 else "none",
                ls="",
                ms=5 + 2 * candidate,
                capsize=2,
            )
        axes.set(ylabel="overlap")

    def draw(figure: Any) -> None:
        by_bytes, by_time = figure.subplots(2, 1, sharey=True)
        scatter(by_bytes, lambda one: float(one.bytes_per_token))
        scatter(by_time, lambda one: 1e3 * float(one.seconds.sum()))
        by_bytes.set(xlabel="stored bytes a raw token", xlim=(0, None))
        by_time.set(xlabel="all stages, ms", xscale="log")
        handles = [
            by_bytes.plot([], [], color=SERIES[i % len(SERIES)], marker=MARKERS[i % len(MARKERS)], ls="")[0]
            for i in range(len(formats))
        ]
        handles += [
            by_bytes.plot([], [], color=INK, marker="o", ls="", fillstyle="full" if i == 0 else "none")[0]
            for i in range(len(candidates))
        ]
        figure.legend(handles, [*formats, *candidates], loc="outside upper center", ncols=3)

    told = "; ".join(
        f"{one.candidate.item()} {one.format.item()}: overlap {float(one.overlap_mean):.4f} at "
        f"{float(one.bytes_per_token):g} bytes a token and {milliseconds(float(one.seconds.sum()))} ms"
        for one in _points(dataset)
    )
    return Figure(
        "tradeoff",
        "Overlap with the exact selection against bytes a token (top) and time (bottom), with 95 % intervals. Colour "
        f"and shape: format; filled: {candidates[0]}, open: other candidates. Up and to the left is better.",
        told,
        svg_of("tradeoff", 5.0, draw),
    )


def _measured(dataset: xr.Dataset) -> Table:
    rows = [
        (
            str(one.candidate.item()),
            str(one.format.item()),
            f"{float(one.bytes_per_token):g}",
            f"{float(one.overlap_mean):.4f}",
            f"{float(one.overlap_low):.4f} - {float(one.overlap_high):.4f}",
            f"{float(one.overlap_worst):.4f}",
            *(milliseconds(float(value)) for value in one.seconds.values),
            f"{float(one.ratio):.2f}",
            f"{float(one.format_ratio):.2f}",
        )
        for one in _points(dataset)
    ]
    stages = tuple(f"{stage}, ms" for stage in dataset.stage.values)
    first = dataset.candidate.values[0], dataset.format.values[0]
    columns = ("candidate", "format", "bytes a token", "overlap", "95 % interval", "worst row", *stages)
    ratios = (f"score over {first[0]}", f"total over {first[1]}")
    return Table("Bytes, overlap and time of one run.", (*columns, *ratios), tuple(rows), labels=2)


def _recorded(dataset: xr.Dataset) -> Table:
    names = ("device", "device_candidate", "device_format", "device_stage")
    rows = []
    for i in range(dataset.sizes["record"]):
        one = dataset.isel(record=i)
        sizes = (f"{int(one.device_rows):,}", f"{int(one.device_keys):,}")
        rows.append((*(str(one[n].item()) for n in names), *sizes, milliseconds(float(one.device_seconds))))
    columns = ("device", "candidate", "format", "stage", "rows", "keys", "ms")
    return Table("Recorded on devices, in other runs.", columns, tuple(rows), labels=4)

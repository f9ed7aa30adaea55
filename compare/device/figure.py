"""A record of the bench as a figure: our times over each peer's, and shares of the copy bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsa_crosscheck.compare.device.table import shape_of
from dsa_crosscheck.compare.device.verdicts import OURS
from dsa_crosscheck.compare.reports.extra import need
from dsa_crosscheck.compare.reports.figures import INK, MARKERS, SERIES, svg_of
from dsa_crosscheck.compare.reports.page import Figure

ROW = 0.17
"""Inches of height a line of points."""
LEGEND_COLUMNS = 4
LABELS = {"score": "", "store": "store ", "select": "top-k "}

Points = dict[str, dict[str, float]]
"""Value by series, by line."""


def kernels_figure(record: Mapping[str, Any]) -> Figure:
    """Two panels of the ``cost`` entries; ``description`` tells every point, in words that follow the record."""
    ratios, shares = ratio_points(record), share_points(record)

    def draw(figure: Any) -> None:
        heights = [len(ratios) + 4, len(shares) + 4]
        top, bottom = figure.subplots(2, 1, height_ratios=heights)
        _lines(top, ratios, _series(ratios))
        top.axvline(1.0, color=INK, linewidth=1)
        top.set(xscale="log", xlabel="our time over the peer's (below 1: faster)")
        ticker = need("matplotlib.ticker")
        top.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        top.xaxis.set_major_formatter("{x:g}")
        top.xaxis.set_minor_locator(ticker.NullLocator())
        _lines(bottom, shares, _series(shares))
        bottom.set(xlim=(0, 103), xlabel="share of the copy bandwidth, %")

    return Figure(
        "kernels",
        f"Times on {record['device']}, commit {record['commit']}: ours over each peer's in one run (top), and the "
        "share of the measured copy bandwidth that our kernels reach (bottom).",
        "; ".join([*_told(ratios, lambda value: f"{value:.3g} times"), *_told(shares, lambda value: f"{value:.0f} %")]),
        svg_of("kernels", ROW * (len(ratios) + len(shares) + 14), draw),
    )


def ratio_points(record: Mapping[str, Any]) -> Points:
    """Our time over each peer's, by line (format and shape); lines that no peer did are left out.

    They are the record's own ``ratio_to``, which it has of the contender that was named first.
    """
    return {_label(entry): dict(entry["ratio_to"]) for entry in _ours(record) if entry["ratio_to"]}


def share_points(record: Mapping[str, Any]) -> Points:
    """Percent of the copy bandwidth by format, by line (shape); entries without counted bytes are left out."""
    points: Points = {}
    for entry in _ours(record):
        if "bytes" in entry:
            share = 100 * entry["bytes"] / entry["seconds"] / record["copy_bytes_per_second"]
            points.setdefault(LABELS[entry["stage"]] + shape_of(entry), {})[entry["format"]] = share
    return points


def _ours(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry for entry in record["cost"] if entry["candidate"] == OURS[0]]


def _label(entry: Mapping[str, Any]) -> str:
    kind = "" if entry["stage"] == "select" else f"{entry['format']} "
    return LABELS[entry["stage"]] + kind + shape_of(entry)


def _series(points: Points) -> list[str]:
    return list(dict.fromkeys(name for values in points.values() for name in values))


def _lines(axes: Any, points: Points, series: Sequence[str]) -> None:
    labels = list(points)
    for i, name in enumerate(series):
        at = [(values[name], line) for line, values in enumerate(points.values()) if name in values]
        axes.plot(*zip(*at, strict=True), color=SERIES[i], marker=MARKERS[i], ls="", ms=4, label=name)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    columns = min(len(series), LEGEND_COLUMNS)
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=columns, columnspacing=1.0, handletextpad=0.2)


def _told(points: Points, value_text: Callable[[float], str]) -> list[str]:
    return [
        f"{label}: " + ", ".join(f"{name} {value_text(value)}" for name, value in values.items())
        for label, values in points.items()
    ]

"""Figures of the needle study."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from dsa_crosscheck.compare.reports.figures import INK, MARKERS, SERIES, error_bars, svg_of
from dsa_crosscheck.compare.reports.page import Figure
from dsa_crosscheck.compare.studies.needle_text import lossy, searching
from dsa_crosscheck.compare.studies.statistics import wilson_interval
from dsa_crosscheck.compare.studies.threshold import RECALL

BINS = np.arange(-1.0, 4.01, 0.5)


def figures(dataset: xr.Dataset) -> tuple[Figure, ...]:
    """Needles lost and found by context, recall by margin, and the smallest gap that is still found."""
    return _lost(dataset), _recall(dataset), _by_margin(dataset), _smallest(dataset)


def _shown(dataset: xr.Dataset) -> list[str]:
    """Formats that a figure can tell apart: one fp8 scale kind and one fp4 tie rule where there are two."""
    names = [str(name) for name in dataset.format.values]
    twins = {"fp8-power-of-two": "fp8-fp32-scale", "fp4-toward-zero": "fp4-even"}
    return [name for name in names if twins.get(name) not in names]


def _lost(dataset: xr.Dataset) -> Figure:
    names = [name for name in _shown(dataset) if name in lossy(dataset)]
    return _by_context(
        dataset,
        names,
        "lost_share",
        "lost, of found exactly",
        "Needles that exact scores find and a format loses, by context, all depths and strengths, "
        f"{dataset.family.values[0]} haystack. Bars: Wilson's 95 % interval. Contexts of at most k keys select every "
        "key and are left out.",
    )


def _recall(dataset: xr.Dataset) -> Figure:
    return _by_context(
        dataset,
        _shown(dataset),
        "recall",
        "recall",
        "All needles found, in the same haystacks. Recall falls with the context in exact scores too: a longer "
        "haystack has more keys that answer as well by chance. Bars: Wilson's 95 % interval.",
    )


def _by_context(dataset: xr.Dataset, names: list[str], value: str, label: str, caption: str) -> Figure:
    """``value`` with its interval against context, a panel for each k."""
    one = dataset.isel(family=0)
    ks = [int(k) for k in dataset.k.values if searching(dataset, int(k))]

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(ks), 1, sharex=True, squeeze=False)[:, 0]
        for axes, k in zip(panels, ks, strict=True):
            contexts = searching(dataset, k)
            for i, name in enumerate(names):
                cell = one.sel(k=k, format=name, context=contexts)
                mean, low, high = (cell[f"{value}{suffix}"].values for suffix in ("", "_low", "_high"))
                # A factor apart on the logarithmic axis, so that equal values do not hide each other.
                x = np.array(contexts) * 1.05 ** (i - (len(names) - 1) / 2)
                look = _look(dataset, name)
                axes.errorbar(x, mean, yerr=error_bars(mean, low, high), ms=4, lw=1.2, capsize=2, label=name, **look)
            axes.set(xscale="log", title=f"k = {k:,}", ylabel=label)
            axes.yaxis.set_major_formatter(lambda value, _: f"{round(100 * value, 3):g}%")
            ticks = [int(c) for c in dataset.context.values]
            axes.set_xticks(ticks, [f"{c:,}" for c in ticks], rotation=35, ha="right")
            axes.minorticks_off()
        panels[-1].set_xlabel("context, raw tokens")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)

    text = "; ".join(
        f"k {k:,}, {context:,} tokens: "
        + ", ".join(f"{name} {float(one[value].sel(k=k, format=name, context=context)):.1%}" for name in names)
        for k in ks
        for context in searching(dataset, k)
    )
    figure_name = f"{value.replace('_', '-')}-by-context"
    return Figure(
        figure_name,
        caption,
        f"Lines of {label} against context. {text}.",
        svg_of(figure_name, 1.65 * len(ks) + 0.9, draw),
    )


def _look(dataset: xr.Dataset, name: str) -> dict[str, str]:
    """Colour and marker of a format, the same in all figures."""
    place = _shown(dataset).index(name)
    return {"color": SERIES[place], "marker": MARKERS[place]}


def _by_margin(dataset: xr.Dataset) -> Figure:
    names = [name for name in _shown(dataset) if name in lossy(dataset)]
    centres = (BINS[1:] + BINS[:-1]) / 2
    counts = {}
    for name in names:
        margin = dataset.probe_margin.sel(format=name).values.reshape(-1)
        hit = dataset.probe_found.sel(format=name).values.reshape(-1)
        known = np.isfinite(margin)
        tried, _ = np.histogram(margin[known], BINS)
        found, _ = np.histogram(margin[known], BINS, weights=hit[known])
        counts[name] = (found, tried)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        fine = np.linspace(BINS[0], BINS[-1], 100)
        axes.plot(fine, stats.norm.cdf(fine), color=INK, lw=0.9, label="normal noise")
        axes.axhline(RECALL, color=INK, lw=0.6, ls=":")
        for i, name in enumerate(names):
            found, tried = counts[name]
            low, high = wilson_interval(found, tried)
            share = found / np.where(tried > 0, tried, np.nan)
            x = centres + 0.05 * (i - (len(names) - 1) / 2)
            look = _look(dataset, name)
            axes.errorbar(
                x, share, yerr=error_bars(share, low, high), ms=4, ls="", capsize=2, lw=1.2, label=name, **look
            )
        axes.set(xlabel="margin over the k-th key, in the format's noise", ylabel="recall")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        figure.legend(loc="outside upper center", ncols=4)

    text = "; ".join(
        f"{name}: " + ", ".join(f"{c:+.2f}: {f / t:.0%}" for c, f, t in zip(centres, *counts[name], strict=True) if t)
        for name in names
    )
    return Figure(
        "recall-by-margin",
        "Needles aimed at the boundary: recall against the needle's exact margin over the k-th key, in units of the "
        "format's own noise there; all contexts, k and families. The curve is what normal noise predicts; the dotted "
        "line is 95 %.",
        f"Points of recall against margin in noise standard deviations. {text}.",
        svg_of("recall-by-margin", 3.2, draw),
    )


def _smallest(dataset: xr.Dataset) -> Figure:
    names = lossy(dataset)
    one = dataset.isel(family=0)
    ks = [int(k) for k in dataset.k.values if searching(dataset, int(k))]
    context = max(searching(dataset, k)[-1] for k in ks)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for j, k in enumerate(ks):
            cell = one.sel(k=k, context=context, format=names)
            gap = cell.smallest_gap.values
            low, high = np.maximum(cell.smallest_gap_low.values, gap * 0.05), cell.smallest_gap_high.values
            axes.errorbar(
                gap, np.arange(len(names)) + 0.18 * (j - (len(ks) - 1) / 2), xerr=error_bars(gap, low, high),
                color=SERIES[j], marker=MARKERS[j], ms=5, ls="", capsize=2, lw=1.2, label=f"k = {k:,}",
            )  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel="smallest lead found at 95 %, in spreads of the scores")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        figure.legend(loc="outside upper center", ncols=4)

    text = "; ".join(
        f"{name}: "
        + ", ".join(f"k {k:,} {float(one.smallest_gap.sel(k=k, context=context, format=name)):.4f}" for k in ks)
        for name in names
    )
    return Figure(
        "smallest-gap",
        f"The smallest lead over the k-th key that each format still finds 95 % of the time, in standard deviations "
        f"of the row's scores, {context:,} tokens. Bars: 95 % bootstrap interval over needles.",
        f"Points of the smallest lead by format, in standard deviations of the scores. {text}.",
        svg_of("smallest-gap", 0.42 * len(names) + 1.3, draw),
    )

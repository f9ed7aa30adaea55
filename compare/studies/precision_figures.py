"""Figures of the precision study."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.reports.figures import INK, MARKERS, MUTED, PAPER, SERIES, error_bars, svg_of
from dsa_crosscheck.compare.reports.page import Figure
from dsa_crosscheck.compare.studies.attribution import PARTS
from dsa_crosscheck.compare.studies.precision_text import Focus, hadamard_gain, lossy, place_of, prediction_error

LABELLED = 0.07
"""Parts of at least this width carry their percentage: no reader needs to tell them by colour."""


def figures(dataset: xr.Dataset, at: Focus) -> tuple[Figure, ...]:
    """All figures whose data was measured."""
    made = (
        _by_context(dataset, at),
        _by_family(dataset, at),
        _hadamard(dataset, at),
        _parts(dataset, at),
        _predicted(dataset),
    )
    return tuple(figure for figure in made if figure is not None)


def _by_context(dataset: xr.Dataset, at: Focus) -> Figure | None:
    one = dataset.sel(family=at.family).isel(score_dtype=0, hadamard=0)
    measured = [c for c in dataset.context.values if one.overlap_mean.sel(context=c).notnull().any()]
    if len(measured) < 2:
        return None
    kinds, ks = _distinct(lossy(dataset)), [int(k) for k in dataset.k.values]

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(ks), 1, sharex=True, squeeze=False)[:, 0]
        for axes, k in zip(panels, ks, strict=True):
            for i, kind in enumerate(kinds):
                cell = one.sel(format=kind, k=k)
                mean = 1 - cell.overlap_mean.values
                low, high = 1 - cell.overlap_high.values, 1 - cell.overlap_low.values
                # An interval may reach zero loss, which a logarithmic axis cannot show.
                error = error_bars(mean, np.maximum(low, mean * 0.05), high)
                axes.errorbar(
                    dataset.context.values,
                    mean,
                    yerr=error,
                    color=SERIES[i],
                    marker=MARKERS[i],
                    ms=4,
                    lw=1.2,
                    capsize=2,
                    label=kind,
                )
            axes.set(xscale="log", yscale="log", title=f"k = {k:,}", ylabel="keys lost")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}" if value < 0.01 else f"{value:.0%}")
            axes.set_xticks(measured, [_tokens(c) for c in measured])
            axes.minorticks_off()
        panels[-1].set_xlabel("context, raw tokens")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)

    text = "; ".join(
        f"{kind} at k {ks[-1]:,}: "
        + ", ".join(
            f"{1 - value:.2%} at {_tokens(c)}"
            for c in measured
            if np.isfinite(value := float(one.overlap_mean.sel(format=kind, k=ks[-1], context=c)))
        )
        for kind in kinds
    )
    return Figure(
        "loss-by-context",
        f"Share of the selected keys that each format loses, {at.family} family, by context. Bars: 95 % interval of "
        "the mean over seeds. The loss grows with the context because more keys crowd around the k-th score.",
        f"Lines of the share of keys lost against context. {text}.",
        svg_of("loss-by-context", 1.7 * len(ks) + 0.6, draw),
    )


def _by_family(dataset: xr.Dataset, at: Focus) -> Figure:
    kinds = _distinct(lossy(dataset))
    places = [p for f in dataset.family.values if (p := place_of(dataset, str(f), at)) is not None]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for row, place in enumerate(places):
            for i, kind in enumerate(kinds):
                for on in dataset.hadamard.values:
                    cell = dataset.sel(
                        family=place.family, context=place.context, k=place.k, format=kind, hadamard=on
                    ).isel(score_dtype=0)
                    y = row + (i - (len(kinds) - 1) / 2) * 0.2
                    mean = float(cell.overlap_mean)
                    axes.plot([float(cell.overlap_worst), mean], [y, y], color=SERIES[i], lw=0.7, alpha=0.5)
                    axes.errorbar(
                        mean,
                        y,
                        xerr=error_bars(mean, float(cell.overlap_low), float(cell.overlap_high)),
                        color=SERIES[i],
                        marker=MARKERS[i],
                        ms=5,
                        capsize=2,
                        lw=1.2,
                        mfc=SERIES[i] if on == "on" else PAPER,
                        label=kind if row == 0 and on == "on" else None,
                    )
        axes.set_yticks(range(len(places)), [p.family for p in places])
        axes.invert_yaxis()
        axes.set_xlabel("share of the exact selection that is kept")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        figure.legend(loc="outside upper center", ncols=3)

    first = dataset.isel(score_dtype=0, hadamard=0)
    text = "; ".join(
        f"{p.family} at {_tokens(p.context)}, k {p.k:,}: "
        + ", ".join(
            f"{kind} {float(first.overlap_mean.sel(family=p.family, context=p.context, k=p.k, format=kind)):.2%}"
            for kind in kinds
        )
        for p in places
    )
    where = "; ".join(dict.fromkeys(f"{_tokens(p.context)} tokens and k = {p.k:,}" for p in places))
    return Figure(
        "kept-by-family",
        f"Share kept by family ({where}, the largest that each family has). Filled: with the Hadamard transform; "
        "hollow: without. Bars: 95 % interval of the mean; thin lines reach to the worst row.",
        f"Points of the share of keys kept, by family and format, Hadamard {dataset.hadamard.values[0]}. {text}.",
        svg_of("kept-by-family", 0.62 * len(places) + 1.1, draw),
    )


def _hadamard(dataset: xr.Dataset, at: Focus) -> Figure | None:
    kinds = _distinct(lossy(dataset))
    places = [p for f in dataset.family.values if (p := place_of(dataset, str(f), at)) is not None]
    gains = {(p.family, kind): hadamard_gain(dataset, p.family, p.context, p.k, kind) for p in places for kind in kinds}
    known = {key: gain for key, gain in gains.items() if gain is not None}
    if not known:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvline(0, color=INK, lw=0.8)
        for row, place in enumerate(places):
            for i, kind in enumerate(kinds):
                if (place.family, kind) in known:
                    mean, low, high = known[place.family, kind]
                    axes.errorbar(
                        mean,
                        row + (i - (len(kinds) - 1) / 2) * 0.2,
                        xerr=error_bars(mean, low, high),
                        color=SERIES[i],
                        marker=MARKERS[i],
                        ms=5,
                        capsize=2,
                        lw=1.2,
                        label=kind if row == 0 else None,
                    )
        axes.set_xscale("symlog", linthresh=0.002, linscale=0.6)
        ticks = [-0.2, -0.02, -0.002, 0, 0.002, 0.02, 0.2]
        axes.set_xticks(ticks, ["-20", "-2", "-0.2", "0", "+0.2", "+2", "+20"])
        axes.minorticks_off()
        axes.set_yticks(range(len(places)), [p.family for p in places])
        axes.invert_yaxis()
        axes.set_xlabel("overlap with the transform less without, percentage points")
        figure.legend(loc="outside upper center", ncols=3)

    text = "; ".join(
        f"{f} {kind}: {gain[0]:+.2%} from {gain[1]:+.2%} to {gain[2]:+.2%}" for (f, kind), gain in known.items()
    )
    return Figure(
        "hadamard-gain",
        "What the Hadamard transform gains (right) or costs (left), same rows with and without. It helps where a few "
        "channels are large in keys and queries alike, and harms where channels that are large in keys are small in "
        "queries: it spreads the large channels' rounding error over those that queries weigh most.",
        f"Points of the change in overlap by family and format. {text}.",
        svg_of("hadamard-gain", 0.62 * len(places) + 1.1, draw),
    )


def _parts(dataset: xr.Dataset, at: Focus) -> Figure | None:
    shares = dataset.power_share.sel(family=at.family, context=at.context).isel(hadamard=0).mean("seed")
    kinds = [kind for kind in lossy(dataset) if shares.sel(format=kind).notnull().all()]
    if not kinds:
        return None
    of_total = {
        kind: {
            part: float(shares.sel(format=kind, component=part) / shares.sel(format=kind, component="total"))
            for part in (*PARTS, "interaction")
        }
        for kind in kinds
    }

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for row, kind in enumerate(kinds):
            up = down = 0.0
            for i, part in enumerate((*PARTS, "interaction")):
                value = of_total[kind][part]
                left, up, down = (up, up + value, down) if value >= 0 else (down, up, down + value)
                axes.barh(
                    row,
                    value,
                    left=left,
                    height=0.62,
                    color=SERIES[i] if part != "interaction" else MUTED,
                    edgecolor=PAPER,
                    linewidth=0.6,
                    label=part if row == 0 else None,
                )
                if value >= LABELLED:
                    axes.text(left + value / 2, row, f"{value:.0%}", color=PAPER, ha="center", va="center")
        axes.set_yticks(range(len(kinds)), kinds)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("part of the noise power")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        figure.legend(loc="outside upper center", ncols=3)

    text = "; ".join(
        f"{kind}: " + ", ".join(f"{part} {value:.1%}" for part, value in of_total[kind].items()) for kind in kinds
    )
    return Figure(
        "noise-parts",
        f"Where the noise comes from ({at.family}, {_tokens(at.context)} tokens, scores in bf16), one part substituted "
        "at a time. What the parts leave of the total is the interaction; negative parts lie left of zero.",
        f"Stacked bars of each part of the noise power. {text}.",
        svg_of("noise-parts", 0.42 * len(kinds) + 1.35, draw),
    )


def _predicted(dataset: xr.Dataset) -> Figure:
    one = dataset.sel(format=lossy(dataset)).isel(score_dtype=0)
    families = [str(f) for f in dataset.family.values]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        line = [5e-4, 1.0]
        axes.plot(line, line, color=INK, lw=0.8)
        for i, family in enumerate(families):
            lost = (1 - one.overlap_mean.sel(family=family)).values.reshape(-1)
            expected = (1 - one.predicted_average.sel(family=family)).values.reshape(-1)
            known = np.isfinite(lost) & np.isfinite(expected) & (lost > 0) & (expected > 0)
            axes.plot(
                expected[known],
                lost[known],
                ls="",
                marker=MARKERS[i % len(MARKERS)],
                ms=4,
                mfc="none",
                color=SERIES[i % len(SERIES)],
                label=family,
            )
        axes.set(xscale="log", yscale="log", xlabel="predicted share of keys lost", ylabel="measured share")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.1%}" if value < 0.01 else f"{value:.0%}")
        axes.minorticks_off()
        figure.legend(loc="outside upper center", ncols=3)

    text = "; ".join(f"{name} {error:.4f}" for name, error in prediction_error(dataset).items() if np.isfinite(error))
    return Figure(
        "prediction",
        "Keys lost, predicted from the score density at the k-th key and the noise's standard deviation, against "
        "measured; every format, context, k and side of the transform. On the line the prediction holds. It fails on "
        "plateaus, where equal scores have no density, and where noise grows with the size of keys (spread).",
        f"Scatter of measured against predicted loss. Root mean square error by family: {text}.",
        svg_of("prediction", 3.9, draw),
    )


def _distinct(kinds: list[str]) -> list[str]:
    """The formats that a figure can tell apart: fp4's second tie rule lies on the first."""
    return [kind for kind in kinds if kind != "fp4-toward-zero" or "fp4-even" not in kinds]


def _tokens(count: int) -> str:
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"

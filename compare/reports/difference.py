"""Two runs of one study side by side, what changed significantly first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.reports.page import Page, Table

LISTED = 200
"""Rows of the table of changes; the rest are only counted."""


@dataclass(frozen=True)
class Measure:
    """A variable that two runs can be compared by, with those of its 95 % interval, or None for exact numbers."""

    value: str
    low: str | None = None
    high: str | None = None


@dataclass(frozen=True)
class Change:
    """One measure in one cell: ``before``, ``after``, and the interval of after - before."""

    measure: str
    where: tuple[tuple[str, str], ...]
    before: float
    after: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval of the difference leaves out zero."""
        return bool(self.low > 0 or self.high < 0)

    @property
    def weight(self) -> float:
        """The difference over half the width of its interval; inf for exact numbers that differ."""
        half = (self.high - self.low) / 2
        difference = abs(self.after - self.before)
        return difference / half if half > 0 else (float("inf") if difference else 0.0)


def changes(before: xr.Dataset, after: xr.Dataset, measures: tuple[Measure, ...]) -> list[Change]:
    """Every cell that both have measured: significant ones first, each part by weight.

    The interval of a difference comes from those of both values (MOVER: its lower half is the root of
    the squared lower half of ``after`` and upper half of ``before``), as for independent runs. Runs of
    the same seeds agree more than that, so a change that is called significant is. A value without
    interval is exact, and any difference of it counts. ``ValueError`` when the runs are of two studies
    or share no cell.
    """
    if before.attrs.get("study") != after.attrs.get("study"):
        raise ValueError(
            "`report diff` should get two datasets of one study, got "
            f"{before.attrs.get('study')!r} and {after.attrs.get('study')!r}"
        )
    found: list[Change] = []
    for measure in measures:
        if measure.value in before and measure.value in after:
            found += _changes(before, after, measure)
    if not found:
        raise ValueError("`report diff` should get two datasets with a cell in common, got none that both measured")
    return sorted(found, key=lambda change: (not change.significant, -change.weight, change.measure, change.where))


def _changes(before: xr.Dataset, after: xr.Dataset, measure: Measure) -> list[Change]:
    names = [name for name in (measure.value, measure.low, measure.high) if name is not None]
    old, new = xr.align(before[names], after[names], join="inner")
    dims = old[measure.value].dims
    axes = [old[dim].values for dim in dims]

    def halves(dataset: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value = dataset[measure.value].transpose(*dims).values
        if measure.low is None or measure.high is None:
            return value, np.zeros(value.shape), np.zeros(value.shape)
        low, high = (dataset[name].transpose(*dims).values for name in (measure.low, measure.high))
        return value, value - low, high - value

    (a, a_low, a_high), (b, b_low, b_high) = halves(old), halves(new)
    low, high = b - a - np.hypot(b_low, a_high), b - a + np.hypot(b_high, a_low)
    return [
        Change(
            measure.value,
            tuple((str(dim), str(axis[i])) for dim, axis, i in zip(dims, axes, at, strict=True)),
            float(a[at]),
            float(b[at]),
            float(low[at]),
            float(high[at]),
        )
        for at in np.ndindex(*a.shape)
        if np.isfinite([a[at], b[at], low[at], high[at]]).all()
    ]


def difference_page(before: xr.Dataset, after: xr.Dataset, found: list[Change], names: tuple[str, str]) -> Page:
    """The changes as a page; ``names`` are what the two runs are called."""
    significant = [change for change in found if change.significant]
    study = str(before.attrs["study"])
    answer = [
        f"{len(significant)} of {len(found)} values that both runs measured changed significantly; about "
        f"{0.05 * len(found):.0f} would by chance alone if the intervals were exact and independent."
    ]
    if significant:
        first = significant[0]
        where = ", ".join(f"{dim} {value}" for dim, value in first.where)
        answer.append(f"The clearest is {first.measure} ({where}): {_number(first.before)} to {_number(first.after)}.")
    largest = max(found, key=lambda change: abs(change.after - change.before))
    answer.append(
        f"The largest difference of all is {_number(largest.after - largest.before)} in {largest.measure}"
        f"{'' if largest.significant else ', inside its interval'}."
    )
    shown = found[: max(LISTED, 1)]
    rows = tuple(
        (
            "yes" if change.significant else "no",
            change.measure,
            ", ".join(f"{dim} {value}" for dim, value in change.where),
            _number(change.before),
            _number(change.after),
            f"{change.after - change.before:+.4g}",
            f"{change.low:+.4g} to {change.high:+.4g}",
        )
        for change in shown
    )
    columns = ("significant", "measure", "where", names[0], names[1], "difference", "95 % interval")
    caption = f"Changes, significant ones first ({len(shown)} of {len(found)})."
    environment = tuple(
        (
            name,
            f"{before.attrs[name]}"
            if before.attrs[name] == after.attrs.get(name)
            else f"{before.attrs[name]} / {after.attrs.get(name)}",
        )
        for name in sorted(str(n) for n in before.attrs)
    )
    return Page(
        title=f"Study {study}: {names[0]} and {names[1]} side by side",
        question="What changed between the two runs?",
        answer=tuple(answer),
        figures=(),
        tables=(Table(caption, columns, rows, labels=3),),
        method=(
            "Each value is compared in every cell that both runs measured. The interval of the difference combines "
            "the two 95 % intervals as for independent runs; runs of the same seeds agree more, so the test is "
            "conservative. Values without an interval are exact, and any difference counts.",
            "Nothing is corrected for the number of comparisons; the first sentence says how many to expect.",
        ),
        environment=environment,
        command=f"dsa-crosscheck report diff {names[0]} {names[1]}",
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.0f}"

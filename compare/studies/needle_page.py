"""The needle study as a page."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.environment import PACKAGES
from dsa_crosscheck.compare.reports.difference import Measure
from dsa_crosscheck.compare.reports.page import Page, Table
from dsa_crosscheck.compare.studies.needle_cell import PROBES
from dsa_crosscheck.compare.studies.needle_figures import figures
from dsa_crosscheck.compare.studies.needle_summary import REPLICATES, summarise
from dsa_crosscheck.compare.studies.needle_text import answer, lossy, searching
from dsa_crosscheck.compare.studies.threshold import RESAMPLES

__all__ = ["MEASURES", "REPLICATES", "page", "summarise"]

MEASURES = (
    Measure("lost_share", "lost_share_low", "lost_share_high"),
    Measure("recall", "recall_low", "recall_high"),
    Measure("smallest_margin", "smallest_margin_low", "smallest_margin_high"),
)


def page(dataset: xr.Dataset) -> Page:
    """The whole study; ``ValueError`` when every key of every context is selected."""
    tables = (_lost(dataset), _recall(dataset), _margins(dataset), *_example(dataset), _depths(dataset))
    names = ("python", "platform", "machine", "cpus", *PACKAGES)
    return Page(
        title="Needles in long contexts, by storage format of index keys",
        question="Is a fact planted in a long context still among the selected keys, and by what margin must it lead?",
        answer=answer(dataset),
        figures=figures(dataset),
        tables=tables,
        method=_method(dataset),
        environment=tuple((name, str(dataset.attrs[name])) for name in names if name in dataset.attrs),
        command=str(dataset.attrs["command"]),
    )


def _places(dataset: xr.Dataset) -> list[tuple[str, int, int]]:
    return [
        (str(family), int(context), int(k))
        for family in dataset.family.values
        for k in dataset.k.values
        for context in searching(dataset, int(k))
    ]


def _lost(dataset: xr.Dataset) -> Table:
    rows = []
    for family, context, k in _places(dataset):
        one = dataset.sel(family=family, context=context, k=k)
        shares = (
            f"{float(one.lost_share.sel(format=n)):.2%} [{float(one.lost_share_low.sel(format=n)):.2%}, "
            f"{float(one.lost_share_high.sel(format=n)):.2%}]"
            for n in lossy(dataset)
        )
        rows.append((family, f"{k:,}", f"{context:,}", f"{int(one.found_exactly.sum('seed')):,}", *shares))
    return Table(
        "Needles that exact scores find and a format loses, with Wilson's 95 % interval. Each format also finds some "
        "that exact scores do not: its recall falls by less.",
        ("family", "k", "context", "found exactly", *lossy(dataset)),
        tuple(rows),
        labels=3,
    )


def _recall(dataset: xr.Dataset) -> Table:
    rows = []
    for family, context, k in _places(dataset):
        one = dataset.sel(family=family, context=context, k=k)
        shares = (
            f"{float(one.recall.sel(format=n)):.1%} [{float(one.recall_low.sel(format=n)):.1%}, "
            f"{float(one.recall_high.sel(format=n)):.1%}]"
            for n in dataset.format.values
        )
        rows.append((family, f"{k:,}", f"{context:,}", *shares))
    return Table(
        "Needles found, all depths and strengths, with Wilson's 95 % interval. Contexts of at most k keys, where every "
        "key is selected, are left out.",
        ("family", "k", "context", *(str(n) for n in dataset.format.values)),
        tuple(rows),
        labels=3,
    )


def _margins(dataset: xr.Dataset) -> Table:
    rows = []
    for family, context, k in _places(dataset):
        for name in lossy(dataset):
            one = dataset.sel(family=family, context=context, k=k, format=name)
            if np.isfinite(float(one.smallest_margin)):
                rows.append(
                    (
                        family,
                        f"{k:,}",
                        f"{context:,}",
                        name,
                        f"{float(one.noise_mean):.4f}",
                        f"{float(one.smallest_margin):.2f}",
                        f"{float(one.smallest_margin_low):.2f} to {float(one.smallest_margin_high):.2f}",
                        f"{float(one.smallest_gap):.4f}",
                    )
                )
    return Table(
        "The smallest margin over the k-th key that is found 95 % of the time: in units of the format's noise (normal "
        "noise: 1.64) with its bootstrap interval, and in standard deviations of the row's scores.",
        ("family", "k", "context", "format", "noise / spread", "margin / noise", "95 % interval", "margin / spread"),
        tuple(rows),
        labels=4,
    )


def _example(dataset: xr.Dataset) -> tuple[Table, ...]:
    if "example_key" not in dataset:
        return ()
    a = dataset.attrs
    names = [str(name) for name in dataset.example_format.values]
    rows = []
    for entry, key in enumerate(dataset.example_key.values):
        cells = []
        for f in range(len(names)):
            rank = int(dataset.example_rank.values[entry, f])
            mark = "in" if rank <= int(a["example_k"]) else "out"
            cells.append(f"{float(dataset.example_score.values[entry, f]):.4f} (rank {rank:,}, {mark})")
        rows.append((f"{int(key):,}{' (needle)' if entry == 0 else ''}", *cells))
    caption = (
        f"Key by key: a needle of strength {float(a['example_strength']):.1f} at depth {float(a['example_depth']):.0%} "
        f"of {int(a['example_context']):,} {a['example_family']} tokens (seed {a['example_seed']}, row "
        f"{a['example_row']}), k {int(a['example_k']):,}. Then the last keys that {a['example_loses']} selects in "
        "its place and those around the exact boundary."
    )
    return (Table(caption, ("key", *names), tuple(rows)),)


def _depths(dataset: xr.Dataset) -> Table:
    one = dataset.isel(family=0)
    ks = [int(k) for k in dataset.k.values if searching(dataset, int(k))]
    rows = []
    for k in ks:
        context = searching(dataset, k)[-1]
        for depth in dataset.depth.values:
            cell = one.recall_by_depth.sel(k=k, context=context, depth=depth)
            shares = (f"{float(cell.sel(format=name)):.1%}" for name in dataset.format.values)
            rows.append((f"{k:,}", f"{context:,}", f"{depth:.0%}", *shares))
    return Table(
        f"Needles found by depth at each k's longest context, {dataset.family.values[0]} haystack. Needles answer on "
        "the channels without rotary embedding, so depth should not matter, and differences are chance.",
        ("k", "context", "depth", *(str(n) for n in dataset.format.values)),
        tuple(rows),
        labels=3,
    )


def _method(dataset: xr.Dataset) -> tuple[str, ...]:
    strengths = ", ".join(f"{value:g}" for value in dataset.strength.values)
    return (
        "Simulated: haystacks are generated keys, and a needle is one of them turned towards the direction that "
        f"answers the query best to first order, by strengths {strengths}. Measured: all scores, by the float64 "
        "reference from "
        "each format's stored values. No trained model takes part; how strong a real fact is, is not modelled.",
        f"Every row queries at the last token; {dataset.attrs['seeds']} seeds of {dataset.attrs['rows']} rows, "
        f"{dataset.depth.size} depths. Each needle is planted alone, in the place of the key at its depth.",
        "Wilson's intervals take needles as independent; those of one row share a haystack, so they are too narrow.",
        "Margin: the needle's exact score less the k-th largest of the other keys. Noise: the standard deviation "
        "of the "
        "format's error over keys of exact rank k/2 to 3k/2.",
        f"Smallest margin: {PROBES} needles a row, format and k are aimed at margins of -1 to 4 noise units by "
        "bisection "
        "on the strength; P(found) = Phi(a + b margin) is fitted by maximum likelihood, its interval by "
        f"{RESAMPLES} resamples.",
    )

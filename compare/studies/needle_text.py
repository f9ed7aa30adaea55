"""The needle study in words: a console table and the sentences of the answer."""

from __future__ import annotations

import textwrap
from io import StringIO

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

WIDTH = 100


def searching(dataset: xr.Dataset, k: int) -> list[int]:
    """Contexts in which a needle can be lost at ``k``: more keys than k, so that noise has a boundary to act on."""
    known = dataset.noise_mean.sel(k=k).notnull().any(["family", "format"])
    return [int(context) for context in dataset.context.values if bool(known.sel(context=context))]


def lossy(dataset: xr.Dataset) -> list[str]:
    """Formats other than ``exact``."""
    return [str(name) for name in dataset.format.values if name != "exact"]


def longest(dataset: xr.Dataset) -> tuple[int, int]:
    """The longest context in which needles can be lost, and the smallest k there.

    ``ValueError`` when every key of every context is selected.
    """
    places = [(searching(dataset, int(k))[-1], -int(k)) for k in dataset.k.values if searching(dataset, int(k))]
    if not places:
        raise ValueError("the dataset should have a context of more than k keys, got none")
    context, negative = max(places)
    return context, -negative


def answer(dataset: xr.Dataset) -> tuple[str, ...]:
    """Three sentences: what is lost at the longest context, smallest margins, and the example.

    ``ValueError`` as ``longest``.
    """
    context, k = longest(dataset)
    one = dataset.isel(family=0).sel(context=context, k=k)
    lost = ", ".join(
        f"{name} {float(one.lost_share.sel(format=name)):.1%} [{float(one.lost_share_low.sel(format=name)):.1%}, "
        f"{float(one.lost_share_high.sel(format=name)):.1%}]"
        for name in lossy(dataset)
    )
    first = (
        f"Of the needles that exact scores select at {context:,} tokens with k {k:,} ({dataset.family.values[0]} "
        f"haystack, all depths and strengths), these are lost: {lost}."
    )
    gaps = [(name, float(one.smallest_gap.sel(format=name))) for name in lossy(dataset)]
    known = [(name, gap) for name, gap in gaps if np.isfinite(gap)]
    second = "To be found 95 % of the time a needle has to lead the k-th key by " + (
        ", ".join(f"{gap:.3f} ({name})" for name, gap in known) + " standard deviations of the scores."
        if known
        else "a margin that too few needles came near to tell."
    )
    return first, second, _example(dataset)


def _example(dataset: xr.Dataset) -> str:
    if "example_key" not in dataset:
        return "No planted needle was lost by the coarsest format and kept by the finest."
    a = dataset.attrs
    needle = dataset.example_rank.isel(entry=0)
    return (
        f"One that {a['example_loses']} loses and {a['example_keeps']} keeps, at depth {a['example_depth']:.0%} of "
        f"{int(a['example_context']):,} tokens: rank {int(needle.sel(example_format='exact')):,} in exact scores, "
        f"{int(needle.sel(example_format=a['example_keeps'])):,} and "
        f"{int(needle.sel(example_format=a['example_loses'])):,} in the formats, with k {int(a['example_k']):,}."
    )


def render(dataset: xr.Dataset) -> str:
    """Recall by context and format for each k, and the answer, in at most 100 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("family", no_wrap=True)
    for name in ("context", "k"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in dataset.format.values:
        table.add_column(_short(str(name)), justify="right", no_wrap=True)
    for family in dataset.family.values:
        for k in dataset.k.values:
            for context in searching(dataset, int(k)):
                one = dataset.sel(family=family, k=k, context=context)
                cells = [f"{float(one.recall.sel(format=name)):.1%}" for name in dataset.format.values]
                table.add_row(str(family), f"{context:,}", f"{int(k):,}", *cells)
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    a = dataset.attrs
    return "\n".join(
        [
            f"dsa-crosscheck study needle     seeds {a['seeds']}   rows {a['rows']}   Hadamard {a['hadamard']}",
            "",
            *(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")),
            "",
            "needles selected, of all depths and strengths; contexts of at most k keys select every key",
            "",
            *(line for sentence in answer(dataset) for line in textwrap.wrap(sentence, WIDTH)),
        ]
    )


def _short(name: str) -> str:
    return name.replace("power-of-two", "2^n").replace("fp32-scale", "fp32").replace("toward-zero", "to-0")

"""Study ``needle``: is a fact that was planted in a long context still selected, in each format?"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xarray as xr

from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.studies.assemble import CELL, empty, fill
from dsa_crosscheck.compare.studies.families import family_of
from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.compare.studies.needle_cell import PROBES, NeedleCell, measure
from dsa_crosscheck.compare.studies.needle_example import example
from dsa_crosscheck.compare.studies.needle_summary import summarise
from dsa_crosscheck.compare.studies.needle_text import render
from dsa_crosscheck.compare.studies.sweep_options import measured_cells
from dsa_crosscheck.reference.geometry import Geometry

__all__ = ["NeedleGrid", "cells", "collect", "grid_of", "render", "run"]

CONTEXTS = (338, 943, 1850, 4509, 10498, 22528)
"""Raw tokens of the sweep in which the loss of recall was first seen."""
LONG_CONTEXTS = (65536, 262144, 1048576)
STRENGTHS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
DEPTHS = tuple(round(0.1 * i, 1) for i in range(11))

DESCRIPTIONS = {
    "found": ("needles selected, of rows", "1"),
    "tried": ("rows that a needle was planted for", "1"),
    "found_exactly": ("needles of all depths and strengths that exact scores select", "1"),
    "lost": ("those of them that the format does not select", "1"),
    "margin": (
        "exact score less the k-th other key's, over the format's noise near it: median over rows and depths",
        "1",
    ),
    "noise": (
        "standard deviation of the format's error near the k-th key over that of exact scores, mean of rows",
        "1",
    ),
    "probe_margin": ("margin of needles aimed at the boundary", "noise standard deviations"),
    "probe_found": ("whether such a needle is selected", "1"),
}


@dataclass(frozen=True)
class NeedleGrid:
    """The axes of one study. ``ValueError`` names one that is empty, out of order or out of range."""

    families: tuple[str, ...]
    contexts: tuple[int, ...]
    seeds: int
    rows: int
    formats: tuple[str, ...]
    ks: tuple[int, ...]
    hadamard: bool

    def __post_init__(self) -> None:
        for name in ("families", "formats"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"`NeedleGrid({name}=...)` should name at least one value, each once, got {values}")
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown:
            raise ValueError(f"`NeedleGrid(formats=...)` should be of {tuple(FORMATS)}, got {unknown}")
        for name in ("contexts", "ks"):
            values = getattr(self, name)
            if not values or min(values) < 1 or list(values) != sorted(set(values)):
                raise ValueError(f"`NeedleGrid({name}=...)` should be positive and ascending, got {values}")
        for name in ("seeds", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"`NeedleGrid({name}=...)` should be at least 1, got {getattr(self, name)}")


def grid_of(args: argparse.Namespace) -> NeedleGrid:
    """The axes that the options name. Families without random numbers are refused: their rows stand at few places."""
    fixed = [name for name in args.families if not family_of(name).drawn]
    if fixed:
        raise ValueError(f"`--families` should be generated ones, whose rows see the whole context, got {fixed}")
    contexts = args.contexts or (CONTEXTS + LONG_CONTEXTS if args.full else CONTEXTS)
    keys = max(contexts) // Geometry().compress_ratio
    if keys <= min(args.topk):
        raise ValueError(
            f"`--contexts` should give more than `--topk` keys, got {keys:,} keys and k {min(args.topk):,}"
        )
    return NeedleGrid(
        families=tuple(args.families),
        contexts=tuple(contexts),
        seeds=args.seeds,
        rows=args.rows,
        formats=tuple(args.formats or FORMATS),
        ks=tuple(args.topk),
        hadamard=args.hadamard == "on",
    )


def cells(grid: NeedleGrid) -> Iterator[NeedleCell]:
    """The cells of ``grid``, each independent of the others."""
    for family in grid.families:
        for context in grid.contexts:
            for seed in range(grid.seeds):
                yield NeedleCell(
                    family, context, seed, grid.rows, grid.formats, grid.ks, DEPTHS, STRENGTHS, grid.hadamard
                )


def template(grid: NeedleGrid) -> xr.Dataset:
    """The whole dataset of ``grid`` with NaN everywhere."""
    outer = ("family", "context", "seed", "format", "k")
    coords: dict[str, list[object]] = {
        "family": list(grid.families),
        "context": list(grid.contexts),
        "seed": list(range(grid.seeds)),
        "format": list(grid.formats),
        "k": list(grid.ks),
        "depth": list(DEPTHS),
        "strength": list(STRENGTHS),
        "probe": list(range(grid.rows * PROBES)),
    }
    dims = {
        "found": (*outer, "depth", "strength"),
        "tried": outer[:3],
        "found_exactly": (*outer[:3], "k"),
        "lost": outer,
        "margin": (*outer, "strength"),
        "noise": outer,
        "probe_margin": (*outer, "probe"),
        "probe_found": (*outer, "probe"),
    }
    dataset = empty(coords, dims, DESCRIPTIONS)
    dataset.context.attrs = {"long_name": "context", "units": "raw tokens"}
    dataset.k.attrs = {"long_name": "selected keys", "units": "keys"}
    dataset.depth.attrs = {"long_name": "place of the needle: 0 the oldest key, 1 the newest", "units": "1"}
    dataset.strength.attrs = {"long_name": "share of the needle that answers the query, as a cosine", "units": "1"}
    return dataset


def collect(grid: NeedleGrid, measured: Iterable[xr.Dataset]) -> xr.Dataset:
    """The cells' datasets in one, with recall, intervals and smallest margins."""
    dataset = summarise(fill(template(grid), measured))
    dataset.attrs = {
        "families": ", ".join(grid.families),
        "seeds": grid.seeds,
        "rows": grid.rows,
        "hadamard": "on" if grid.hadamard else "off",
        **{name: str(value) for name, value in environment().items()},
    }
    return dataset


def run(args: argparse.Namespace) -> xr.Dataset:
    """Measure every cell as a sweep, and look for a needle that one format loses and another keeps."""
    grid = grid_of(args)
    dataset = collect(grid, measured_cells(list(cells(grid)), measure, template(grid), CELL, args))
    return dataset.merge(example(list(cells(grid))), combine_attrs="no_conflicts")

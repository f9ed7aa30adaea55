"""Study ``precision``: what a storage format of keys and queries costs in the selection.

Each cell (family, context, seed) is independent of the others; see ``precision_cell``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import xarray as xr

from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.studies.assemble import CELL, empty, fill
from dsa_crosscheck.compare.studies.attribution import COMPONENTS, SCORE_DTYPE
from dsa_crosscheck.compare.studies.families import FAMILIES, family_of
from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.compare.studies.precision_cell import BY_K, PrecisionCell, measure
from dsa_crosscheck.compare.studies.precision_summary import summarise
from dsa_crosscheck.compare.studies.precision_text import render
from dsa_crosscheck.compare.studies.scoring import SCORE_DTYPES
from dsa_crosscheck.compare.studies.sweep_options import measured_cells
from dsa_crosscheck.reference.geometry import Geometry

__all__ = ["Grid", "cells", "collect", "grid_of", "render", "run", "template"]

CONTEXTS = (8192, 32768, 131072)
FULL_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576)
ATTRIBUTED_CONTEXT = 32768
"""Where the loss is attributed unless told otherwise, or a family's largest context below it, in the first
seed: shares change little with either, and cost four more scorings a format."""

DESCRIPTIONS = {
    "overlap": ("share of the k selected keys whose exact score reaches the exact k-th", "1"),
    "swap_depth_mean": ("mean distance of swapped keys from the boundary", "ranks"),
    "swap_depth_max": ("largest distance of a swapped key from the boundary", "ranks"),
    "mass_lost": ("share of the exact selection's softmax mass that is missed, exact scores as logits", "1"),
    "predicted": ("overlap predicted from score density and noise of all keys", "1"),
    "predicted_near": ("the same from the noise of keys near the boundary", "1"),
    "tie_overlap": ("shared keys of the two fp4 tie rules' selections", "1"),
    "snr": ("power of exact scores over that of the error", "dB"),
    "loss_share": (f"part of 1 - overlap, scores stored in {SCORE_DTYPE}", "1"),
    "power_share": (f"part of noise power over signal power, scores stored in {SCORE_DTYPE}", "1"),
}


@dataclass(frozen=True)
class Grid:
    """The axes of one study; ``attribute_all``: in every cell instead of one a family."""

    families: tuple[str, ...]
    contexts: tuple[int, ...]
    seeds: int
    rows: int
    formats: tuple[str, ...]
    hadamard: tuple[bool, ...]
    score_dtypes: tuple[str, ...]
    ks: tuple[int, ...]
    attribute_all: bool

    def __post_init__(self) -> None:
        for name in ("families", "contexts", "formats", "hadamard", "score_dtypes", "ks"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"`Grid({name}=...)` should name at least one value, each once, got {values}")
        for name, low in (("seeds", 1), ("rows", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"`Grid({name}=...)` should be at least {low}, got {getattr(self, name)}")
        for name in ("contexts", "ks"):
            values = getattr(self, name)
            if min(values) < 1 or list(values) != sorted(values):
                raise ValueError(f"`Grid({name}=...)` should be positive and ascending, got {values}")
        for name, known in (("formats", FORMATS), ("score_dtypes", SCORE_DTYPES)):
            unknown = [value for value in getattr(self, name) if value not in known]
            if unknown:
                raise ValueError(f"`Grid({name}=...)` should be of {tuple(known)}, got {unknown}")


def grid_of(args: argparse.Namespace) -> Grid:
    """The axes that the options name; ``ValueError`` names one that can't be used, before anything is measured."""
    contexts = args.contexts or (FULL_CONTEXTS if args.full else CONTEXTS)
    keys = max(contexts) // Geometry().compress_ratio
    if keys <= min(args.topk) and not args.case:
        raise ValueError(
            f"`--contexts` should give more than `--topk` keys, got {keys:,} keys and k {min(args.topk):,}"
        )
    return Grid(
        families=tuple(args.families or FAMILIES) + tuple(str(path) for path in args.case),
        contexts=tuple(contexts),
        seeds=args.seeds if args.seeds is not None else (5 if args.full else 3),
        rows=args.rows if args.rows is not None else (32 if args.full else 16),
        formats=tuple(args.formats or FORMATS),
        hadamard=(True, False),
        score_dtypes=SCORE_DTYPES,
        ks=tuple(args.topk),
        attribute_all=args.full,
    )


def cells(grid: Grid) -> Iterator[PrecisionCell]:
    """The cells of ``grid`` that can be measured.

    A family without random numbers has one seed; a case file has one context, its own, which stands
    under the smallest of the grid that holds it. A family has no cell past its largest context.
    """
    for name in grid.families:
        family = family_of(name)
        contexts = _contexts(name, family.largest, grid.contexts)
        attributed = max((c for c in contexts if c <= ATTRIBUTED_CONTEXT), default=contexts[0]) if contexts else None
        for context in contexts:
            for seed in range(grid.seeds if family.drawn else 1):
                yield PrecisionCell(
                    name,
                    context,
                    seed,
                    grid.rows,
                    grid.formats,
                    grid.hadamard,
                    grid.score_dtypes,
                    grid.ks,
                    grid.attribute_all or (context == attributed and seed == 0),
                )


def _contexts(name: str, largest: int | None, contexts: Sequence[int]) -> list[int]:
    if largest is None:
        return list(contexts)
    if name in FAMILIES:
        return [context for context in contexts if context <= largest]
    return [min((context for context in contexts if context >= largest), default=contexts[-1])]


def template(grid: Grid) -> xr.Dataset:
    """The whole dataset of ``grid`` with NaN everywhere."""
    coords: dict[str, list[object]] = {
        "family": list(grid.families),
        "context": list(grid.contexts),
        "seed": list(range(grid.seeds)),
        "format": list(grid.formats),
        "hadamard": ["on" if on else "off" for on in grid.hadamard],
        "score_dtype": list(grid.score_dtypes),
        "k": list(grid.ks),
        "row": list(range(grid.rows)),
        "component": list(COMPONENTS),
    }
    outer = ("family", "context", "seed", "format", "hadamard")
    dims = {
        **{name: (*outer, "score_dtype", "k", "row") for name in BY_K},
        "snr": (*outer, "score_dtype", "row"),
        "tie_overlap": (*outer[:3], "hadamard", "k", "row"),
        "loss_share": (*outer, "k", "component"),
        "power_share": (*outer, "component"),
    }
    dataset = empty(coords, dims, DESCRIPTIONS)
    dataset.context.attrs = {"long_name": "context", "units": "raw tokens"}
    dataset.k.attrs = {"long_name": "selected keys", "units": "keys"}
    return dataset


def collect(grid: Grid, measured: Iterable[xr.Dataset]) -> xr.Dataset:
    """The cells' datasets in one, with the summaries over seeds and rows."""
    dataset = summarise(fill(template(grid), measured))
    dataset.attrs = {
        "families": ", ".join(grid.families),
        "seeds": grid.seeds,
        "rows": grid.rows,
        "drawn_families": ", ".join(name for name in grid.families if family_of(name).drawn),
        **{name: str(value) for name, value in environment().items()},
    }
    return dataset


def run(args: argparse.Namespace) -> xr.Dataset:
    """Measure every cell, as a sweep that can be stopped (see ``measured_cells``)."""
    grid = grid_of(args)
    return collect(grid, measured_cells(list(cells(grid)), measure, template(grid), CELL, args))

"""A needle that one format loses and another keeps, with the keys around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.compare.studies.needle_cell import NeedleCell, NeedleField, field_of, selected
from dsa_crosscheck.compare.studies.operands import exact, stored
from dsa_crosscheck.compare.studies.planting import Needles, plant
from dsa_crosscheck.compare.studies.ranking import best_first

NEIGHBOURS = 4
"""Keys shown on each side of the needle's verdict: the last that the losing format selects, and the last of
the exact selection."""


def example(cells: Sequence[NeedleCell]) -> xr.Dataset:
    """The clearest such needle of the largest context that has one, an empty dataset when no cell has any.

    Variables over ``entry`` (the needle first) and ``example_format``: ``example_score``, ``example_rank``
    (1 = best); over ``entry``: ``example_key``. Attributes say where it is and which format loses it.
    """
    for cell in sorted(cells, key=lambda one: -one.context):
        found = _search(cell)
        if found is not None:
            return found
    return xr.Dataset()


def _search(cell: NeedleCell) -> xr.Dataset | None:
    lossy = [name for name in cell.formats if name != "exact"]
    if len(lossy) < 2:
        return None
    field = field_of(cell)
    rows = field.operands.lengths.size
    grid = np.meshgrid(cell.depths, cell.strengths, indexing="ij")
    needles = plant(field.operands, *(np.broadcast_to(one.reshape(-1), (rows, one.size)) for one in grid))
    kept, lost = selected(field, needles, lossy[0]), selected(field, needles, lossy[-1])
    truth = needles.scores(exact)
    best: tuple[float, int, int, int] | None = None
    for j, k in enumerate(cell.ks):
        for row, column in np.argwhere(kept[j] & ~lost[j]):
            kth = field.haystack("exact", int(row)).kth_of_others(needles.places[row, [column]], k)[0]
            lead = float(truth[row, column] - kth)
            if best is None or lead > best[0]:
                best = (lead, j, int(row), int(column))
    return None if best is None else _shown(field, needles, *best[1:], lossy)


def _shown(field: NeedleField, needles: Needles, j: int, row: int, column: int, lossy: list[str]) -> xr.Dataset:
    cell, k = field.cell, field.cell.ks[j]
    place = int(needles.places[row, column])
    names = list(dict.fromkeys(("exact", *lossy)))
    scores, orders = [], []
    for name in names:
        with_needle = field.haystack(name, row).scores.copy()
        with_needle[place] = needles.columns(column, column + 1).scores(stored(FORMATS[name]))[row, 0]
        scores.append(with_needle)
        orders.append(best_first(with_needle, with_needle.size))
    rank = np.argsort(orders, axis=1) + 1
    losing = names.index(lossy[-1])
    shown = [place, *orders[losing][k - NEIGHBOURS : k], *orders[0][k - NEIGHBOURS : k], orders[0][k]]
    keys = list(dict.fromkeys(int(key) for key in shown))
    strengths = np.tile(cell.strengths, len(cell.depths))
    return xr.Dataset(
        {
            "example_key": ("entry", np.array(keys), {"long_name": "index of the key; the needle first"}),
            "example_score": (
                ("entry", "example_format"),
                np.array(scores)[:, keys].T,
                {"long_name": "score in each format", "units": "1"},
            ),
            "example_rank": (
                ("entry", "example_format"),
                rank[:, keys].T,
                {"long_name": "rank in each format, 1 the best", "units": "ranks"},
            ),
        },
        {"example_format": names},
        {
            "example_family": cell.family,
            "example_context": cell.context,
            "example_seed": cell.seed,
            "example_row": row,
            "example_k": k,
            "example_strength": float(strengths[column]),
            "example_depth": float(np.repeat(cell.depths, len(cell.strengths))[column]),
            "example_keeps": lossy[0],
            "example_loses": lossy[-1],
        },
    )

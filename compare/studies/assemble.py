"""One dataset from the datasets of a study's cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import xarray as xr

CELL = ("family", "context", "seed")
"""Dimensions in which a cell has one element."""


def empty(
    coords: Mapping[str, list[object]],
    dims: Mapping[str, tuple[str, ...]],
    descriptions: Mapping[str, tuple[str, str]],
) -> xr.Dataset:
    """NaN for every variable of ``dims``, with its ``long_name`` and ``units``."""
    return xr.Dataset(
        {
            name: (
                of,
                np.full([len(coords[dim]) for dim in of], np.nan),
                dict(zip(("long_name", "units"), descriptions[name], strict=True)),
            )
            for name, of in dims.items()
        },
        coords,
    )


def fill(template: xr.Dataset, measured: Iterable[xr.Dataset]) -> xr.Dataset:
    """``template`` with every cell's values in place; what no cell measured stays as it was."""
    dataset = template.copy(deep=True)
    for one in measured:
        at = {dim: one[dim].values for dim in CELL}
        for name, variable in one.data_vars.items():
            dataset[name].loc[at] = variable.transpose(*dataset[name].dims).values
    return dataset

"""A dataset's results as JSON lines: the study first, then one record a cell."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import xarray as xr


def records_of(dataset: xr.Dataset, replicates: tuple[str, ...]) -> Iterator[str]:
    """Lines of JSON: attributes with ``"record": "study"``, then each cell's coordinates and variables.

    Variables that share their dimensions share records. Those over ``replicates`` (seeds, rows) stay in
    the netCDF file: their summaries are here. A cell of NaN alone was not measured and has no record; a
    single NaN is null, an infinity the string "inf" or "-inf".
    """
    yield json.dumps({"record": "study", **{str(name): _plain(value) for name, value in dataset.attrs.items()}})
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, variable in dataset.data_vars.items():
        dims = tuple(str(dim) for dim in variable.dims)
        if not set(dims) & set(replicates):
            groups.setdefault(dims, []).append(str(name))
    for dims, names in groups.items():
        axes = [dataset[dim].values for dim in dims]
        arrays = [dataset[name].values for name in names]
        for at in np.ndindex(*(axis.size for axis in axes)):
            values = {name: _plain(array[at]) for name, array in zip(names, arrays, strict=True)}
            if any(value is not None for value in values.values()):
                where = {dim: _plain(axis[i]) for dim, axis, i in zip(dims, axes, at, strict=True)}
                yield json.dumps({"record": "cell", **where, **values}, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item() if value.size == 1 else str(value)
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return value

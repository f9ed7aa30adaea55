"""Writing a study's dataset: netCDF-4 or JSON, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import xarray as xr

from dsa_crosscheck.compare.files import write_text


def write_netcdf(path: Path, dataset: xr.Dataset) -> None:
    """Write ``dataset`` so that ``path`` holds either its old content or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        dataset.to_netcdf(temporary, engine="h5netcdf", format="NETCDF4")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, dataset: xr.Dataset) -> None:
    """The dataset's coordinates, variables and attributes as plain JSON, NaN as null; atomic as ``write_netcdf``."""
    write_text(path, json.dumps(_plain(dataset.to_dict()), indent=1, allow_nan=False) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value

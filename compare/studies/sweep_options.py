"""Options of studies whose cells are a sweep, and running one as they say."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import xarray as xr

from dsa_crosscheck.compare.studies.cell_store import CellStore, Failure, NetcdfStore
from dsa_crosscheck.compare.studies.sweep import run_cells
from dsa_crosscheck.compare.studies.zarr_store import ZarrStore


def measured_cells(
    cells: Sequence[Any],
    function: Callable[[Any], xr.Dataset],
    template: xr.Dataset,
    along: Sequence[str],
    args: argparse.Namespace,
) -> Iterator[xr.Dataset]:
    """Run ``cells`` as ``args.store``, ``args.workers`` and ``args.scheduler`` say; results in the order of the cells.

    Without a store, results live in a temporary folder. With a scheduler they are regions of one Zarr
    store of the shape of ``template``, else a netCDF file a cell. Failed cells are told on standard error
    and left out: they stay NaN. ``ValueError`` when all fail, or for a scheduler without ``--store``.
    """
    if args.scheduler is not None and args.store is None:
        raise ValueError("`--store` should name a folder that all workers of the scheduler see, got none")
    with tempfile.TemporaryDirectory(prefix="dsa-crosscheck-") as temporary:
        # Another version may give other values, or mean something else by the same cell.
        identity = f"{function.__module__}.{function.__qualname__} {version('dsa-crosscheck')}"
        folder = Path(temporary) if args.store is None else args.store
        store: CellStore
        if args.scheduler is None:
            store = NetcdfStore(folder, identity)
        else:
            store = ZarrStore(folder, identity, template, along)
        failures = run_cells(cells, function, store, workers=args.workers, scheduler=args.scheduler)
        _tell(failures, args.store)
        if cells and len(failures) == len(cells):
            raise ValueError(f"every cell failed, the first one so:\n{failures[0].traceback}")
        yield from store.datasets(cells)


def _tell(failures: list[Failure], folder: Path | None) -> None:
    for failure in failures:
        print(f"failed: {failure.cell}\n{failure.traceback}", file=sys.stderr)
    if failures and folder is not None:
        print(
            f"{len(failures)} cells failed, see {folder / 'failed'}; the same command tries them again", file=sys.stderr
        )

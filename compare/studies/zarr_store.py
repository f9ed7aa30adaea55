"""A sweep's cells as regions of one Zarr store, which many machines write at the same time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.studies.cell_store import SweepFolder, cell_id


class ZarrStore(SweepFolder):
    """``data.zarr`` of the shape of ``template``, in which each cell owns its chunks.

    ``template``: the whole result with its coordinates; variables are floating, and NaN where nothing is
    measured. ``along``: dimensions in which a cell has one element; it has all elements of the others,
    so no two cells share a chunk. The folder must be visible to every worker under the same path.

    Raises ``ImportError`` naming the extra when zarr or dask is missing, ``ValueError`` for another
    sweep's folder, a dimension the template lacks, or a variable that can't hold NaN.
    """

    def __init__(self, folder: Path, identity: str, template: xr.Dataset, along: Sequence[str]) -> None:
        try:
            import dask.array  # noqa: F401
            import zarr  # noqa: F401
        except ImportError as error:
            raise ImportError(f"a Zarr store needs the extra dsa-crosscheck[distributed]: {error}") from error
        missing = [dim for dim in along if dim not in template.dims]
        if missing:
            raise ValueError(f"`ZarrStore(along=...)` should name dimensions of the template, got {missing}")
        whole = [name for name, variable in template.data_vars.items() if variable.dtype.kind != "f"]
        if whole:
            raise ValueError(f"`ZarrStore(template=...)` should have floating variables, got others for {whole}")
        axes = {str(dim): [str(value) for value in template[dim].values] for dim in template.dims}
        super().__init__(folder, json.dumps([identity, axes]))
        self.along = tuple(along)
        self.axes = axes
        if not self.path.exists():
            self._create(template)

    @property
    def path(self) -> Path:
        """The Zarr store itself."""
        return self.folder / "data.zarr"

    def _create(self, template: xr.Dataset) -> None:
        """Metadata and coordinates; chunks exist once a cell writes them. All of it, or none."""
        fresh = self.folder / "creating.zarr"
        shutil.rmtree(fresh, ignore_errors=True)
        empty = template.assign(
            {
                name: xr.full_like(variable, np.nan).chunk({d: 1 if d in self.along else -1 for d in variable.dims})
                for name, variable in template.data_vars.items()
            }
        )
        # Zarr has no settled form for text of a fixed length.
        texts = {name: axis.astype(object) for name, axis in template.coords.items() if axis.dtype.kind == "U"}
        empty = empty.assign_coords(texts)
        filled = {name: {"_FillValue": np.nan} for name in empty.data_vars}
        empty.to_zarr(fresh, compute=False, consolidated=False, encoding=filled)
        fresh.rename(self.path)

    def put(self, cell: object, dataset: xr.Dataset) -> None:
        """See ``CellStore``; ``ValueError`` for a result that is not one cell of the template."""
        region = self._region(dataset)
        values = dataset.drop_vars(list(dataset.coords))
        values.to_zarr(self.path, region={dim: slice(i, i + 1) for dim, i in region.items()}, consolidated=False)
        write_text(self._done(cell), json.dumps({"cell": repr(cell), "region": region}) + "\n")
        self._failed(cell).unlink(missing_ok=True)

    def _region(self, dataset: xr.Dataset) -> dict[str, int]:
        for name, axis in self.axes.items():
            if name not in dataset.dims:
                continue
            got = [str(value) for value in dataset[name].values]
            if name in self.along and (len(got) != 1 or got[0] not in axis):
                raise ValueError(f"`ZarrStore.put(dataset=...)` should have one known {name}, got {got}")
            if name not in self.along and got != axis:
                raise ValueError(f"`ZarrStore.put(dataset=...)` should have every {name}, got {got}")
        absent = [dim for dim in self.along if dim not in dataset.dims]
        if absent:
            raise ValueError(f"`ZarrStore.put(dataset=...)` should have the dimensions {self.along}, got no {absent}")
        return {dim: self.axes[dim].index(str(dataset[dim].values[0])) for dim in self.along}

    def datasets(self, cells: Sequence[Any]) -> Iterator[xr.Dataset]:
        """See ``CellStore``; a variable that a cell does not have is NaN."""
        with self.open() as whole:
            for cell in cells:
                if self.is_done(cell):
                    region = json.loads(self._done(cell).read_text(encoding="utf-8"))["region"]
                    yield whole.isel({dim: [i] for dim, i in region.items()}).load()

    def open(self) -> xr.Dataset:
        """The whole store, read when used; NaN where no cell is done."""
        return xr.open_zarr(self.path, consolidated=False, chunks=None)

    def _done(self, cell: object) -> Path:
        return self.folder / "done" / f"{cell_id(cell)}.json"

"""Where the cells of a sweep are kept: a folder from which a sweep that was stopped goes on.

A cell is any value whose ``repr`` says what it measures, such as a frozen dataclass of plain values. It
counts as done once its record is there, and the record is written last: whatever kills a process, a cell
is either done or measured again, with the same values.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import xarray as xr

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.studies.output import write_netcdf


@dataclass(frozen=True)
class Failure:
    """A cell that raised, or that killed the process it ran in; ``traceback`` says how."""

    cell: str
    traceback: str


class CellStore(Protocol):
    """What ``sweep.run_cells`` needs of a store; instances travel to other processes by pickle."""

    def put(self, cell: object, dataset: xr.Dataset) -> None:
        """Keep the result of ``cell``; it is done from here on."""
        ...

    def is_done(self, cell: object) -> bool:
        """Whether the result of ``cell`` is kept."""
        ...

    def fail(self, cell: object, traceback: str) -> None:
        """Record that ``cell`` failed; a later ``put`` removes the record."""
        ...

    def failures(self, cells: Sequence[Any]) -> list[Failure]:
        """Recorded failures of ``cells``, in their order."""
        ...

    def datasets(self, cells: Sequence[Any]) -> Iterator[xr.Dataset]:
        """Results of those of ``cells`` that are done, in their order."""
        ...


def cell_id(cell: object) -> str:
    """Name of the cell's files: 24 hexadecimal digits of its ``repr``'s SHA-256."""
    return hashlib.sha256(repr(cell).encode()).hexdigest()[:24]


class SweepFolder(ABC):
    """The folder's identity and its records of failures, which all stores share.

    ``identity`` is any text that must not change between runs of one sweep. Raises ``ValueError`` if the
    folder belongs to another one.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder = folder
        for name in ("done", "failed"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        known = folder / "sweep.json"
        if not known.exists():
            write_text(known, json.dumps({"identity": identity}) + "\n")
        found = json.loads(known.read_text(encoding="utf-8"))["identity"]
        if found != identity:
            raise ValueError(f"`folder` should be new or hold the sweep {identity!r}, got {folder} with {found!r}")

    def is_done(self, cell: object) -> bool:
        """See ``CellStore``."""
        return self._done(cell).exists()

    def fail(self, cell: object, traceback: str) -> None:
        """See ``CellStore``."""
        write_text(self._failed(cell), json.dumps({"cell": repr(cell), "traceback": traceback}, indent=1) + "\n")

    def failures(self, cells: Sequence[Any]) -> list[Failure]:
        """See ``CellStore``."""
        paths = [self._failed(cell) for cell in cells]
        return [Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in paths if path.exists()]

    @abstractmethod
    def _done(self, cell: object) -> Path:
        """The file whose presence says that ``cell`` is done."""

    def _failed(self, cell: object) -> Path:
        return self.folder / "failed" / f"{cell_id(cell)}.json"


class NetcdfStore(SweepFolder):
    """One netCDF file a cell: any datasets, no shape known beforehand."""

    def put(self, cell: object, dataset: xr.Dataset) -> None:
        """See ``CellStore``."""
        write_netcdf(self._done(cell), dataset)
        self._failed(cell).unlink(missing_ok=True)

    def datasets(self, cells: Sequence[Any]) -> Iterator[xr.Dataset]:
        """See ``CellStore``."""
        for cell in cells:
            if self.is_done(cell):
                yield xr.load_dataset(self._done(cell), engine="h5netcdf")

    def _done(self, cell: object) -> Path:
        return self.folder / "done" / f"{cell_id(cell)}.nc"

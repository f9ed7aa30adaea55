"""Cells that a sweep's worker processes import by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

FAMILIES = ("alpha", "beta")
SEEDS = tuple(range(6))
COLUMNS = 5


@dataclass(frozen=True)
class Cell:
    """One cell; ``mood``: what goes wrong, ``notes``: folder in which every run of a cell leaves a file."""

    family: str
    seed: int
    notes: str
    mood: str = "fine"


def cells(notes: Path, moods: dict[tuple[str, int], str] | None = None) -> list[Cell]:
    """Every family and seed."""
    wrong = moods or {}
    return [Cell(f, s, str(notes), wrong.get((f, s), "fine")) for f in FAMILIES for s in SEEDS]


def template() -> xr.Dataset:
    """The dataset of all cells, NaN everywhere."""
    shape = (len(FAMILIES), len(SEEDS), COLUMNS)
    coords = {"family": list(FAMILIES), "seed": list(SEEDS), "column": list(range(COLUMNS))}
    values = {
        "value": (("family", "seed", "column"), np.full(shape, np.nan)),
        "rare": (("family", "seed"), np.full(shape[:2], np.nan)),
    }
    return xr.Dataset(values, coords)


def runs(notes: Path, cell: Cell) -> int:
    """How often ``cell`` was begun."""
    return len(list(notes.glob(f"{cell.family}-{cell.seed}-*")))


def measure(cell: Cell) -> xr.Dataset:
    """Numbers that depend on the cell alone; only odd seeds have the variable ``rare``."""
    notes = Path(cell.notes)
    before = runs(notes, cell)
    (notes / f"{cell.family}-{cell.seed}-{os.getpid()}-{time.monotonic_ns()}").touch()
    if cell.mood == "raises":
        raise ArithmeticError(f"seed {cell.seed} can't be measured")
    if cell.mood == "kills" or (cell.mood == "kills once" and before == 0):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.mood == "slow":
        time.sleep(0.3)
    rng = np.random.default_rng([FAMILIES.index(cell.family), cell.seed])
    variables: dict[str, object] = {"value": (("family", "seed", "column"), rng.normal(size=(1, 1, COLUMNS)))}
    if cell.seed % 2:
        variables["rare"] = (("family", "seed"), rng.normal(size=(1, 1)))
    return xr.Dataset(variables, {"family": [cell.family], "seed": [cell.seed], "column": list(range(COLUMNS))})

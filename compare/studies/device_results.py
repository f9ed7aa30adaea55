"""Figures recorded on a device: the JSON files of a folder such as docs/results.

A file is one object. Of its members, ``memory`` and ``cost`` are read here; both are optional lists:

- ``memory``: ``path``, ``format``, ``rows``, ``keys``, ``peak_bytes``, ``largest_bytes``
- ``cost``: ``candidate``, ``format``, ``stage``, ``rows``, ``keys``, ``seconds``

``device`` (text) is required beside them. What a ``cost`` entry says beyond that (bytes, rates, ratios, checks)
is in ``compare.device.cell``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xarray as xr


@dataclass(frozen=True)
class MemoryRecord:
    """Bytes that ``path`` took on ``device`` to score ``rows`` rows against ``keys`` keys."""

    device: str
    path: str
    format: str
    rows: int
    keys: int
    peak_bytes: int
    largest_bytes: int


@dataclass(frozen=True)
class CostRecord:
    """Seconds that one ``stage`` of ``candidate`` took on ``device``."""

    device: str
    candidate: str
    format: str
    stage: str
    rows: int
    keys: int
    seconds: float


Record = TypeVar("Record", MemoryRecord, CostRecord)


def memory_records(folder: Path) -> list[MemoryRecord]:
    """Every ``memory`` entry of the folder's files, by file name; none if there is no such folder.

    ``ValueError`` names the file and the field for an entry that isn't as described above.
    """
    return _records(folder, "memory", MemoryRecord)


def cost_records(folder: Path) -> list[CostRecord]:
    """Every ``cost`` entry; as ``memory_records``."""
    return _records(folder, "cost", CostRecord)


def cost_dataset(records: list[CostRecord]) -> xr.Dataset:
    """The records as variables over ``record``, ``device_`` before each field's name."""
    variables = {}
    for field in fields(CostRecord):
        name = "device" if field.name == "device" else f"device_{field.name}"
        kind = {"str": object, "int": np.int64, "float": np.float64}[str(field.type)]
        variables[name] = ("record", np.array([getattr(record, field.name) for record in records], kind))
    return xr.Dataset(variables)


def _records(folder: Path, member: str, kind: type[Record]) -> list[Record]:
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found += records_in(path.name, content, member, kind) if isinstance(content, dict) else []
    return found


def records_in(name: str, content: dict[str, Any], member: str, kind: type[Record]) -> list[Record]:
    """The entries of ``member`` of one file's ``content``; ``name`` is what errors call it."""
    device = content.get("device")
    entries = enumerate(content.get(member, []))
    return [_record(f"{name}: {member}[{number}]", {**entry, "device": device}, kind) for number, entry in entries]


def _record(where: str, entry: dict[str, object], kind: type[Record]) -> Record:
    values = {}
    for field in fields(kind):
        value = entry.get(field.name)
        wanted = {"str": (str,), "int": (int,), "float": (int, float)}[str(field.type)]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ValueError(f"`{where}.{field.name}` should be of type {field.type}, got {value!r}")
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError(f"`{where}.{field.name}` should be positive, got {value!r}")
        values[field.name] = value
    return kind(**values)  # type: ignore[arg-type]

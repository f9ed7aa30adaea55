"""Figures recorded on a device: the JSON files of a folder such as docs/results.

A file is one object. Of its members, ``memory`` and ``cost`` are read here; both are optional lists:

- ``memory``: ``path``, ``format``, ``rows``, ``keys``, ``peak_bytes``, ``largest_bytes``
- ``cost``: ``candidate``, ``format``, ``stage``, ``rows``, ``keys``, ``seconds``

``device`` (text) is required beside them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar


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


def _records(folder: Path, member: str, kind: type[Record]) -> list[Record]:
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content.get(member, []) if isinstance(content, dict) else []
        for number, entry in enumerate(entries):
            found.append(_record(f"{path.name}: {member}[{number}]", {**entry, "device": content.get("device")}, kind))
    return found


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

"""Who did the same work in one record, and the ratio of their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

WORK = ("stage", "format", "rows", "keys", "next_n", "k")
"""Fields of a ``cost`` entry that say what was done; the last two are only where they mean something."""


def ratios_to(entry: Mapping[str, Any], entries: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Median time of ``entry`` over that of each other candidate that did the same work; below 1 is faster."""
    work = [entry.get(name) for name in WORK]
    return {
        other["candidate"]: entry["seconds"] / other["seconds"]
        for other in entries
        if other["candidate"] != entry["candidate"] and [other.get(name) for name in WORK] == work
    }

"""What a record's checks say: nothing, or what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OURS = ("cuda", "cuda-mma")
"""Who is the project's own; figures show the first."""


def failure(entry: Mapping[str, Any]) -> str:
    """What is wrong with the result of a ``cost`` entry; empty if nothing is.

    Scores past the bound of every accumulator model, or a checked row with other keys, are wrong for anybody.
    Our own must be within the ``ieee-fp32`` bound, differ in no stored byte, and select in index order; a peer
    rounds in an order of its own, so its differing bytes are told and not judged.
    """
    ours = entry["candidate"] in OURS
    factors = entry.get("worst_error_over_bound", {"ieee-fp32": 0.0})
    if not (min(factors.values()) <= 1 and all(factor == factor for factor in factors.values())):
        return "scores past every bound"
    if ours and not factors["ieee-fp32"] <= 1:
        return "scores past the ieee-fp32 bound"
    if ours and entry.get("differing"):
        return f"{entry['differing']:,} of {entry['compared']:,} checked bytes differ"
    if entry.get("wrong_rows"):
        return f"{entry['wrong_rows']} of {entry['checked_rows']} checked rows hold other keys"
    if ours and entry.get("ordered") is False:
        return "keys are not in index order"
    return ""


def failures(record: Mapping[str, Any]) -> list[str]:
    """What is wrong with our own results, a line for each candidate, stage, format and shape."""
    found = [(entry, failure(entry)) for entry in record["cost"] if entry["candidate"] in OURS]
    return [
        f"{e['candidate']} {e['stage']} {e['format']} {e['rows']} x {e['keys']}: {wrong}" for e, wrong in found if wrong
    ]

"""How many keys a query row may see."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.inputs import Inputs


def visible_keys(positions: np.ndarray, ratio: int, rule: str) -> np.ndarray:
    """Keys visible at raw ``positions``, int64.

    ``finished-groups``: floor((p + 1) / ratio), the groups complete at p. ``own-group``:
    floor(p / ratio) + 1, which lets a query see its own unfinished group. They agree where
    p % ratio == ratio - 1. ``ValueError`` for another rule.
    """
    if rule == "finished-groups":
        return (positions + 1) // ratio
    if rule == "own-group":
        return positions // ratio + 1
    raise ValueError(f"`visible_keys(rule=...)` should be 'finished-groups' or 'own-group', got {rule!r}")


def row_lengths(inputs: Inputs, rule: str) -> np.ndarray:
    """Visible and stored keys of every query row, int32 [rows]; 0 is legal."""
    seen = visible_keys(inputs.query_positions, inputs.geometry.compress_ratio, rule)
    return np.minimum(seen, inputs.key_counts[inputs.request_of_row]).astype(np.int32)

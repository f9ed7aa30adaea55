"""Where two float32 arrays differ in any bit."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.stages.scores import visible


def bits_differ(first: np.ndarray, second: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """bool [rows, n]: visible columns whose bits differ; NaNs of two payloads and the two zeros do.

    Both float32 with at least ``max(lengths)`` columns; columns past a row's length count as equal.
    """
    width = int(lengths.max(initial=0))
    left, right = (np.ascontiguousarray(a[:, :width]).view(np.uint32) for a in (first, second))
    return (left != right) & visible(lengths, width)


def first_place(differ: np.ndarray) -> tuple[int, int]:
    """Row and column of the first True of a mask that has one."""
    row, column = np.unravel_index(int(np.argmax(differ)), differ.shape)
    return int(row), int(column)

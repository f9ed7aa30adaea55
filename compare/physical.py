"""Selections of physical slots: back to logical keys, and whose keys they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.setup import Setup

RETURNS = ("logical", "physical")
"""What a candidate's ``run`` may select: indices within the row's request, or page * page_size + offset."""

UNREACHABLE = np.iinfo(np.int64).min
"""Stands for a slot that the row's block table does not reach: no key of its request."""

NOBODY = -1


@dataclass(frozen=True)
class Located:
    """``index`` int64 [rows, topk]: logical keys; ``UNREACHABLE`` where a slot due is none of the row's.

    ``owner`` int64 [rows, topk]: the other request whose page such a slot is on, or ``NOBODY``. None
    for selections that were logical all along.
    """

    index: np.ndarray
    owner: np.ndarray | None = None


def returned_kind(candidate: Any) -> str:
    """The candidate's ``returns``; ``ValueError`` when it is neither of ``RETURNS``."""
    kind = getattr(candidate, "returns", "logical")
    if kind not in RETURNS:
        raise ValueError(f"`crosscheck(candidate=...)`: `returns` should be one of {RETURNS}, got {kind!r}")
    return str(kind)


def to_logical(selection: np.ndarray, setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    """Physical slots, int [rows, topk], by the inputs' block table: ``index`` and ``owner`` of ``Located``.

    Only the min(topk, length) slots that are due are mapped, and only where they are not negative: the
    rest is padding, or empty.
    """
    inputs, lengths = setup.inputs, setup.trace.lengths
    size, table = inputs.geometry.page_size, inputs.block_table.astype(np.int64)
    index, owner = selection.astype(np.int64), np.full(selection.shape, NOBODY, np.int64)
    held = -(-inputs.key_counts // size)
    for row, request in enumerate(inputs.request_of_row):
        slots = index[row, : min(int(lengths[row]), selection.shape[1])]
        page, offset = np.divmod(slots, size)
        filled = slots >= 0
        slots[filled] = _logical(page, offset, table[request, : held[request]], size)[filled]
        lost = filled & (slots == UNREACHABLE)
        for other in np.flatnonzero(np.arange(table.shape[0]) != request) if lost.any() else ():
            theirs = _logical(page, offset, table[other, : held[other]], size)
            owner[row, : slots.size][lost & (theirs >= 0) & (theirs < inputs.key_counts[other])] = other
    return index, owner


def _logical(page: np.ndarray, offset: np.ndarray, table: np.ndarray, size: int) -> np.ndarray:
    """Logical keys of physical places in one request's pages; ``UNREACHABLE`` where it has no such page."""
    order = np.argsort(table, kind="stable")
    if not table.size:
        return np.full(page.shape, UNREACHABLE, np.int64)
    at = order[np.minimum(np.searchsorted(table[order], page), table.size - 1)]
    return np.where((table[at] == page) & (page >= 0), at * size + offset, UNREACHABLE)

"""What a selection must be before anyone asks whether it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.conventions import PADDING_VALUES


@dataclass(frozen=True)
class ContractCheck:
    """``chosen``: the indices of each row, in output order, without padding. ``faults``: a sentence
    per broken rule, the row it was first seen in, and how many rows and slots break it."""

    chosen: list[np.ndarray]
    faults: tuple[str, ...]


def check_contract(selection: np.ndarray, lengths: np.ndarray, topk: int, padding: str) -> ContractCheck:
    """Check int [rows, topk] against its contract: min(topk, length) distinct visible keys, then padding.

    Rules, in this order: slots that hold the padding or nothing valid where a key is due; indices
    past the row's length (keys it may not see, or none at all); the same key twice; padding with
    another value or in another place.
    """
    due = np.minimum(lengths.astype(np.int64), topk)
    slot = np.arange(topk)[None, :]
    owed = slot < due[:, None]
    index = selection.astype(np.int64)
    visible = (index >= 0) & (index < lengths[:, None])
    value = PADDING_VALUES[padding]
    past = index >= lengths[:, None] if value is None else index == value
    faults: list[str] = []
    empty = owed & ~visible
    _fault(faults, empty, due, lambda r, n, total: f"{n} of {total} slots hold no visible key in row {r}")
    ordered = np.sort(np.where(owed & visible, index, -1 - slot), axis=1)
    twice = np.zeros_like(owed)
    twice[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    _fault(faults, twice, due, lambda r, n, total: f"{n} of {total} slots repeat a key in row {r}")
    stray = ~owed & ~past
    _fault(faults, stray, due, lambda r, n, _: f"{n} slots after the last key of row {r} are not {padding} padding")
    chosen = [index[row, : due[row]][visible[row, : due[row]]] for row in range(index.shape[0])]
    return ContractCheck(chosen, tuple(faults))


def _fault(faults: list[str], broken: np.ndarray, due: np.ndarray, sentence: Callable[[int, int, int], str]) -> None:
    rows = np.flatnonzero(broken.any(axis=1))
    if rows.size:
        worst = int(rows[np.argmax(broken[rows].sum(axis=1))])
        text = sentence(worst, int(broken[worst].sum()), int(due[worst]))
        faults.append(text if rows.size == 1 else f"{text} (and {rows.size - 1} more rows)")

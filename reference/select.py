"""Exact top-k of score rows under declared rules for ties, NaN, order and padding."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.conventions import PADDING_VALUES, Conventions


def select(scores: np.ndarray, lengths: np.ndarray, topk: int, conventions: Conventions) -> np.ndarray:
    """Indices of the ``topk`` largest scores of each row, int32 [rows, topk].

    ``scores`` [rows, n] of any float dtype; only the first ``lengths[row]`` columns are read. -0.0
    equals +0.0. NaN of either sign ranks below -inf (``topk_nan='last'``) or above +inf; -inf is a
    value like any other. Equal scores go to the lower or higher index (``topk_ties``). A row of
    length n <= topk selects 0..n-1 and is padded (``topk_padding``); length 0 is all padding.
    ``ValueError`` for topk < 1, a length that is negative or past the row, or another number of
    lengths than rows.
    """
    if topk < 1:
        raise ValueError(f"`select(topk=...)` should be at least 1, got {topk}")
    if lengths.shape != scores.shape[:1]:
        raise ValueError(
            f"`select(lengths=...)` should be [{scores.shape[0]}], one length a row, got {list(lengths.shape)}"
        )
    if lengths.size and not (lengths.min() >= 0 and lengths.max() <= scores.shape[1]):
        raise ValueError(
            f"`select(lengths=...)` should be in [0, {scores.shape[1]}], got {lengths.min()} to {lengths.max()}"
        )
    out = np.empty((scores.shape[0], topk), dtype=np.int32)
    for row, length in enumerate(lengths):
        chosen = _select_row(scores[row, :length], topk, conventions)
        out[row, : chosen.size] = chosen
        out[row, chosen.size :] = _padding(int(length), topk - chosen.size, conventions.topk_padding)
    return out


def _select_row(row: np.ndarray, topk: int, conventions: Conventions) -> np.ndarray:
    """Selected indices of one row in output order."""
    rank = ranked(row, conventions.topk_nan)
    chosen = np.arange(rank.size)
    if rank.size > topk:
        kth = np.partition(rank, rank.size - topk)[rank.size - topk]
        above = np.flatnonzero(rank > kth)
        tied = np.flatnonzero(rank == kth)
        need = topk - above.size
        tied = tied[:need] if conventions.topk_ties == "low-index" else tied[tied.size - need :]
        chosen = np.sort(np.concatenate([above, tied]))
    if conventions.topk_order != "score":
        return chosen
    index = chosen if conventions.topk_ties == "low-index" else -chosen
    return chosen[np.lexsort((index, -rank[chosen]))]


def ranked(row: np.ndarray, nan: str) -> np.ndarray:
    """Float64 keys that compare as the scores do: one zero, and NaN past the infinity it ranks beyond.

    Scores are finite or infinite float32, float64 values; the infinities move to the largest finite
    float64 so that NaN has a place beyond them.
    """
    largest = np.finfo(np.float64).max
    # Adding +0.0 turns -0.0 into +0.0.
    key = np.clip(np.asarray(row, np.float64) + 0.0, -largest, largest)
    key[np.isnan(row)] = np.inf if nan == "first" else -np.inf
    return key


def _padding(length: int, count: int, rule: str) -> np.ndarray | int:
    value = PADDING_VALUES[rule]
    return np.arange(length, length + count) if value is None else value

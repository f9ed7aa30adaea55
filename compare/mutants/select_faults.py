"""Faults of the selection: wrong keys, broken contracts, lost candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.mutants.fault import Fault, Right
from dsa_crosscheck.compare.mutants.score_faults import CALLS_PER_RACE

Tensor = torch.Tensor
RANKS_APART = 20
TIES_KEPT = 16
"""Stands for the 1,024 ties that a real kernel kept, at the size of the cases."""
NAN_BITS = 0x7FC00000


def _rank_replaced(rank_of_lost: Callable[[int], int], ranks_past_k: int) -> Callable[..., Tensor]:
    """In the longest row the key of one rank (0 = best) makes way for the one ``ranks_past_k`` after the k-th."""

    def method(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        chosen = right.candidate.select(scores, lengths, topk).clone()
        row, length = _longest(lengths)
        order = scores[row, :length].argsort(descending=True, stable=True)
        lost, found = order[rank_of_lost(topk)], order[min(topk - 1 + ranks_past_k, length - 1)]
        # Where equal scores straddle the k-th place, the lost key may not have been chosen.
        place = int((chosen[row] == lost).nonzero()[0, 0]) if (chosen[row] == lost).any() else topk - 1
        chosen[row, place] = found
        return chosen

    return method


def _unfilled(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk).clone()
    row, length = _longest(lengths)
    due = min(topk, length)
    chosen[row, max(0, due - 3) : due] = -1
    return chosen


def _duplicate(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk).clone()
    row, _ = _longest(lengths)
    chosen[row, 1] = chosen[row, 0]
    return chosen


def _crowded_bin(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    # A radix pass keeps the candidates that share the k-th score's exponent in a buffer that holds
    # half of them; the rest vanish in index order and worse ones take their place.
    chosen = right.candidate.select(scores, lengths, topk).clone()
    for row, length in enumerate(lengths.tolist()):
        if length <= topk:
            continue
        seen = scores[row, :length]
        exponent = torch.frexp(seen).exponent
        kth = int(seen.argsort(descending=True, stable=True)[topk - 1])
        crowd = torch.nonzero((exponent == exponent[kth]) & (seen.sign() == seen[kth].sign()))[:, 0]
        above = int((seen > seen[crowd].max()).sum())
        kept = crowd[: max(topk - above, crowd.numel() // 2)]
        best = kept[seen[kept].argsort(descending=True, stable=True)][: topk - above]
        chosen[row] = torch.cat([torch.nonzero(seen > seen[crowd].max())[:, 0], best]).int().sort().values
    return chosen


def _ties_dropped(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk).clone()
    for row, length in enumerate(lengths.tolist()):
        if length > topk:
            kth = scores[row, :length].sort(descending=True).values[topk - 1]
            ties = torch.nonzero(scores[row, chosen[row].long()] == kth)[:, 0]
            chosen[row, ties[TIES_KEPT:]] = -1
    return chosen


def _zero_padding(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk)
    return torch.where(torch.arange(topk)[None] < lengths[:, None], chosen, 0)


def _past_the_length(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    return right.candidate.select(scores, torch.full_like(lengths, scores.shape[1]), topk)


def _window_start_ignored(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    # Requests packed one after another: the result names columns of the pack, not keys of the request.
    chosen = right.candidate.select(scores, lengths, topk)
    start = np.cumsum(right.inputs.key_counts) - right.inputs.key_counts
    shift = torch.from_numpy(start[right.inputs.request_of_row].astype(np.int32))
    return torch.where(torch.arange(topk)[None] < lengths[:, None], chosen + shift[:, None], chosen)


def _nan_as_index(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk).clone()
    chosen[_longest(lengths)[0], 0] = NAN_BITS
    return chosen


def _order_reversed(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    chosen = right.candidate.select(scores, lengths, topk).clone()
    for row, length in enumerate(lengths.tolist()):
        due = min(topk, length)
        chosen[row, :due] = chosen[row, :due].flip(0)
    return chosen


def _race(right: Right, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    if next(right.calls) % CALLS_PER_RACE:
        return right.candidate.select(scores, lengths, topk)
    return _rank_replaced(lambda k: 0, 1)(right, scores, lengths, topk)


def _longest(lengths: Tensor) -> tuple[int, int]:
    """The row with most keys, and how many."""
    row = int(lengths.argmax())
    return row, int(lengths[row])


def _fault(name: str, what: str, method: Callable[..., Any], needs_repeat: bool = False) -> Fault:
    return Fault(name, "select", what, method, needs_repeat)


SELECT_FAULTS = (
    _fault(
        "select-rank-swapped",
        f"one row has the key {RANKS_APART} ranks past the k-th in place of the k-th",
        _rank_replaced(lambda k: k - 1, RANKS_APART),
    ),
    _fault("select-best-dropped", "one row has the next key in place of its best", _rank_replaced(lambda k: 0, 1)),
    _fault("select-unfilled", "three due slots of one row hold padding", _unfilled),
    _fault("select-duplicate", "one row has the same key twice", _duplicate),
    _fault("select-crowded-bin", "candidates past a buffer's end are dropped where many share a bin", _crowded_bin),
    _fault(
        "select-ties-dropped",
        f"no more than {TIES_KEPT} equal scores are kept, the rest of a row is empty",
        _ties_dropped,
    ),
    _fault("select-zero-padding", "short rows are filled with zeros", _zero_padding),
    _fault("select-past-length", "columns past a row's length take part", _past_the_length),
    _fault("select-window-start", "indices count from the start of the packed batch", _window_start_ignored),
    _fault("select-nan-index", "the bits of a NaN stand for an index", _nan_as_index),
    _fault("select-order-reversed", "the selected keys are listed backwards", _order_reversed),
    _fault("select-race", "one row loses its best key in one call of twenty", _race, needs_repeat=True),
)

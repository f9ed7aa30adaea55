"""Faults of the scorer and the selector, continuing ``faults``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from candidates import case, skipped_keys
from faults import FAULTS, VALUE_BYTES, Fault, store_clamped_slots, with_field

from dsa_crosscheck.compare.candidates.unfused import Unfused

Tensor = torch.Tensor


def drop_a_head(base: Unfused, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    """The last head is left out of the sum."""
    fewer = weights.clone()
    fewer[:, -1] = 0.0
    return base.score(codes, fewer, *rest)


def last_page_unread(base: Unfused, *args: Tensor) -> Tensor:
    """Keys of a row's last page score zero."""
    scores, lengths = base.score(*args), args[-1]
    column = torch.arange(scores.shape[1])
    return scores.masked_fill(column >= ((lengths - 1) // 64 * 64).unsqueeze(1), 0.0)


def bf16_scores(base: Unfused, *args: Tensor) -> Tensor:
    """Scores through bfloat16."""
    return base.score(*args).bfloat16().float()


def neighbours_scale(base: Unfused, codes: Tensor, weights: Tensor, cache: Tensor, *rest: Tensor) -> Tensor:
    """Every key is read with the scale of the slot before it."""
    shifted = cache.clone()
    shifted[:, VALUE_BYTES:] = cache[:, VALUE_BYTES:].roll(4, dims=1)
    return base.score(codes, weights, shifted, *rest)


def bf16_head_weights(base: Unfused, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    """Head weights through bfloat16."""
    return base.score(codes, weights.bfloat16().float(), *rest)


def a_row_shifted(base: Unfused, *args: Tensor) -> Tensor:
    """One row's scores lie one key late."""
    scores = base.score(*args)
    longest = int(args[-1].argmax())
    scores[longest] = scores[longest].roll(1)
    return scores


def two_pages_swapped(base: Unfused, *args: Tensor) -> Tensor:
    """The block table's first two entries are exchanged."""
    *front, table, request, lengths = args
    table = table.clone()
    table[0, :2] = table[0, :2].flip(0)
    return base.score(*front, table, request, lengths)


def one_score_off(base: Unfused, *args: Tensor) -> Tensor:
    """A single score is wrong by a thousandth of the largest."""
    scores = base.score(*args)
    scores[int(args[-1].argmax()), 5] += scores[scores.isfinite()].abs().max() * 1e-3
    return scores


def nan_score(base: Unfused, *args: Tensor) -> Tensor:
    """A single score is NaN."""
    scores = base.score(*args)
    scores[int(args[-1].argmax()), 5] = torch.nan
    return scores


def a_later_key(base: Unfused, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    """The key of rank k + 20 in place of the k-th."""
    chosen = base.select(scores, lengths, topk)
    row = int(lengths.argmax())
    ranking = scores[row, : lengths[row]].argsort(descending=True)
    chosen[row, chosen[row] == ranking[topk - 1]] = int(ranking[topk + 19])
    return chosen


def put(where: int, value: int) -> Callable[..., Tensor]:
    """``value`` in one place of the longest row."""

    def select(base: Unfused, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        chosen = base.select(scores, lengths, topk)
        chosen[int(lengths.argmax()), where] = value
        return chosen

    return select


def a_key_twice(base: Unfused, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    """The first key also fills the second place."""
    chosen = base.select(scores, lengths, topk)
    chosen[int(lengths.argmax()), 1] = chosen[int(lengths.argmax()), 0]
    return chosen


def another_rows_keys(base: Unfused, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    """Every row gets the selection of the row before."""
    return base.select(scores, lengths, topk).roll(1, dims=0)


def whole_rows(base: Unfused, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
    """Columns past a row's length are searched as well."""
    return base.select(scores, torch.full_like(lengths, scores.shape[1]), topk)


FAULTS |= {
    "skipped keys go to slot 0": Fault("store_keys", "cache bytes", store_clamped_slots, inputs=skipped_keys),
    "a head dropped": Fault("score", "scores", drop_a_head),
    "no ReLU": Fault("score", "scores", with_field("score", "relu", False)),
    "last page unread": Fault("score", "scores", last_page_unread),
    "scores through bf16": Fault("score", "scores", bf16_scores),
    "scores read a neighbour's scale": Fault("score", "scores", neighbours_scale),
    "scores with bf16 head weights": Fault("score", "scores", bf16_head_weights),
    "a row of scores shifted": Fault("score", "scores", a_row_shifted),
    "two pages swapped": Fault("score", "scores", two_pages_swapped),
    "one score wrong": Fault("score", "scores", one_score_off),
    "one score NaN": Fault("score", "scores", nan_score),
    "key of rank k + 20": Fault("select", "selection", a_later_key),
    "a key twice": Fault("select", "selection", a_key_twice),
    "-1 inside": Fault("select", "selection", put(3, -1)),
    "index past the length": Fault("select", "selection", put(0, 512)),
    "a NaN's bits as an index": Fault("select", "selection", put(2, 2143289344)),
    "zeros for padding": Fault("select", "selection", with_field("select", "topk_padding", "zero")),
    "another row's keys": Fault("select", "selection", another_rows_keys),
    "columns past the length": Fault("select", "selection", whole_rows),
    "index order where score order is declared": Fault(
        "select",
        "selection",
        with_field("select", "topk_order", "index"),
        "transformers-v4",
        lambda: case("transformers-v4"),
    ),
}

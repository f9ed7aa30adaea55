"""Faults of the scorer: what it reads, how it multiplies, where it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.mutants.fault import Fault, Right

Tensor = torch.Tensor
CALLS_PER_RACE = 20
"""One call in so many goes wrong."""
SATURATED_ABOVE = 0.97


def _head_dropped(right: Right, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    kept = weights.clone()
    kept[:, -1] = 0.0
    return right.candidate.score(codes, kept, *rest)


def _weights_bf16(right: Right, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    return right.candidate.score(codes, weights.bfloat16().float(), *rest)


def _abs_for_relu(right: Right, codes: Tensor, *rest: Tensor) -> Tensor:
    # |x| = relu(x) + relu(-x)
    return right.candidate.score(codes, *rest) + right.candidate.score(_negated(right, codes), *rest)


def _relu_after_weight(right: Right, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    # relu(w x) = max(w, 0) relu(x) + max(-w, 0) relu(-x)
    positive = right.candidate.score(codes, weights.clamp(min=0.0), *rest)
    return positive + right.candidate.score(_negated(right, codes), (-weights).clamp(min=0.0), *rest)


def _negated(right: Right, codes: Tensor) -> Tensor:
    """Codes of the opposite queries: the sign is the top bit of a code's last byte, in both nibbles for fp4."""
    query, width = right.conventions.query, right.inputs.geometry.head_dim
    flipped = codes.clone()
    step = max(1, query.spec.bits // 8)
    values = flipped[..., step - 1 : query.value_bytes(width) : step]
    values ^= 0x88 if query.spec.bits == 4 else 0x80
    return flipped


def _next_page(right: Right, codes: Tensor, weights: Tensor, cache: Tensor, table: Tensor, *rest: Tensor) -> Tensor:
    moved = torch.where(table < 0, table, (table + 1) % cache.shape[0])
    return right.candidate.score(codes, weights, cache, moved, *rest)


def _offset_wraps(right: Right, codes: Tensor, weights: Tensor, cache: Tensor, table: Tensor, *rest: Tensor) -> Tensor:
    wrapped = torch.where(table < 0, table, table % (cache.shape[0] // 2))
    return right.candidate.score(codes, weights, cache, wrapped, *rest)


def _another_request(right: Right, *args: Tensor) -> Tensor:
    *before, request_of_row, lengths = args
    # The longest request has a page for every column that any row asks for.
    longest = int(request_of_row[lengths.argmax()])
    return right.candidate.score(*before, torch.full_like(request_of_row, longest), lengths)


def _neighbour_scale(right: Right, codes: Tensor, weights: Tensor, cache: Tensor, *rest: Tensor) -> Tensor:
    return right.candidate.score(codes, weights, _with_scales(right, cache, lambda s: np.roll(s, 1, axis=1)), *rest)


def _scale_missing(right: Right, codes: Tensor, weights: Tensor, cache: Tensor, *rest: Tensor) -> Tensor:
    one = np.array([127] if right.conventions.key.scale_bytes == 1 else list(np.float32(1.0).tobytes()), np.uint8)

    def ones(scales: np.ndarray) -> np.ndarray:
        return np.resize(one, scales.shape)

    return right.candidate.score(codes, weights, _with_scales(right, cache, ones), *rest)


def _with_scales(right: Right, cache: Tensor, change: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """A copy of ``cache`` whose scale bytes, uint8 [pages, page_size, bytes], went through ``change``."""
    layout = right.layout
    copy = cache.numpy().copy()
    if layout.scale_bytes:
        scales = layout.addresses[:, layout.value_bytes :]
        copy[:, scales] = change(copy[:, scales])
    return torch.from_numpy(copy)


def _last_page_zero(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    size = right.inputs.geometry.page_size
    for row, length in enumerate(args[-1].tolist()):
        scores[row, max(0, length - 1) // size * size : length] = 0.0
    return scores


def _newest(value: float) -> Callable[..., Tensor]:
    def method(right: Right, *args: Tensor) -> Tensor:
        scores = right.candidate.score(*args).clone()
        lengths = args[-1].long()
        rows = torch.nonzero(lengths > 0)[:, 0]
        scores[rows, lengths[rows] - 1] = value
        return scores

    return method


def _row_shifted(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    row = int(args[-1].argmax())
    scores[row, 1:] = scores[row, :-1].clone()
    return scores


def _saturated(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    for row, length in enumerate(args[-1].tolist()):
        if length:
            seen = scores[row, :length]
            scores[row, :length] = seen.clamp(max=float(seen.quantile(SATURATED_ABOVE)))
    return scores


def _rounded_to(dtype: torch.dtype) -> Callable[..., Tensor]:
    def method(right: Right, *args: Tensor) -> Tensor:
        return right.candidate.score(*args).to(dtype).float()

    return method


def _overrun(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    rows = torch.nonzero(args[-1] > 0)[:, 0]
    for row in rows[rows + 1 < scores.shape[0]].tolist():
        scores[row + 1, :2] = scores[row, 0]
    return scores


def _hot_column(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    row = int(args[-1].argmax())
    scores[row, int(args[-1][row]) // 2] = scores[row, : int(args[-1][row])].max()
    return scores


def _nan_score(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args).clone()
    scores[int(args[-1].argmax()), 0] = torch.nan
    return scores


def _writes_input(right: Right, codes: Tensor, weights: Tensor, *rest: Tensor) -> Tensor:
    scores = right.candidate.score(codes, weights, *rest)
    weights *= 0.5
    return scores


def _race(right: Right, *args: Tensor) -> Tensor:
    scores = right.candidate.score(*args)
    if next(right.calls) % CALLS_PER_RACE == 0:
        scores = scores.clone()
        scores[int(args[-1].argmax()), 0] = 0.0
    return scores


def _fault(name: str, what: str, method: Callable[..., Any], needs_repeat: bool = False) -> Fault:
    return Fault(name, "score", what, method, needs_repeat)


SCORE_FAULTS = (
    _fault("score-head-dropped", "the last head is left out of the sum", _head_dropped),
    _fault("score-weights-bf16", "the scorer rounds head weights to bf16", _weights_bf16),
    _fault("score-abs-for-relu", "the magnitude of a product stands for its positive part", _abs_for_relu),
    _fault("score-relu-after-weight", "the positive part is taken after the head's weight", _relu_after_weight),
    _fault("score-next-page", "keys are read from the physical page after theirs", _next_page),
    _fault(
        "score-offset-wraps", "page numbers past half of the cache wrap around, as 32-bit products do", _offset_wraps
    ),
    _fault("score-another-request", "every row reads the keys of one request", _another_request),
    _fault("score-neighbour-scale", "each key is multiplied by the scales of the key before", _neighbour_scale),
    _fault("score-scale-missing", "key scales are taken as one", _scale_missing),
    _fault("score-last-page-zero", "the last page of every row scores zero", _last_page_zero),
    _fault("score-newest-missing", "the newest key of every row scores -inf", _newest(-torch.inf)),
    _fault("score-newest-zero", "the newest key of every row scores zero", _newest(0.0)),
    _fault("score-row-shifted", "the scores of one row lie one key further", _row_shifted),
    _fault("score-saturated", "scores above a row's 97th percentile are cut to it", _saturated),
    _fault("score-bf16", "scores are rounded to bf16", _rounded_to(torch.bfloat16)),
    _fault("score-fp16", "scores are rounded to fp16", _rounded_to(torch.float16)),
    _fault("score-overrun", "every row writes past its end, into the next", _overrun),
    _fault("score-hot-column", "one key of one row has the row's largest score", _hot_column),
    _fault("score-nan", "one score is NaN", _nan_score),
    _fault("score-writes-input", "the scorer halves the head weights it was given", _writes_input),
    _fault("score-race", "a score is lost in one call of twenty", _race, needs_repeat=True),
)

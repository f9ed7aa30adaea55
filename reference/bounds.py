"""Forward error bounds of the stages up to quantisation, derived from float32 arithmetic.

Each function takes the float64 input of a stage with a bound on how far an implementation's input
may be from it, and returns a bound on how far the implementation's output may be from the float64
output. All are elementwise, non-negative float64. Derivations use gamma_n (``models``), with two
roundings' worth (4 u) for an approximate reciprocal square root.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.keys import KeyStages
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.models import FP32_TINY, AccumulatorModel
from dsa_crosscheck.reference.query import QueryStages
from dsa_crosscheck.reference.rope import rope

RSQRT_ROUNDINGS = 4
EXP_ROUNDINGS = 4.0
EXP_ROUNDINGS_PER_UNIT = 2.4
"""A float32 exp of z is within (4 + 2.4 |z|) u: CUDA's fast intrinsic is 2 + floor(1.16 |z|) ulp."""


@dataclass(frozen=True)
class RotatedBound:
    """Bounds after each stage of the key (or query) path, in the shapes of the stages."""

    normed: np.ndarray
    roped: np.ndarray
    rotated: np.ndarray


def pool_bound(kv_score: np.ndarray, position_bias: np.ndarray, model: AccumulatorModel) -> np.ndarray:
    """Bound [groups, head_dim] of the pooled key.

    A logit is rounded once (u |l|), the maximum likewise, their difference once (u |z|), so the
    exponential is off by the factor exp(eta) with eta = those plus its own roundings. Then
    out = sum p kv moves by at most sum p |kv - out| expm1(eta), and the two sums, the product and
    the quotient add gamma of their roundings times sum p |kv|.
    """
    ratio, columns = position_bias.shape
    groups = kv_score.shape[0] // ratio
    windows = np.asarray(kv_score[: groups * ratio], np.float64).reshape(groups, ratio, 2 * columns)
    kv_overlap, kv_own, score_overlap, score_own = np.split(windows, 4, axis=-1)
    bias_overlap, bias_own = np.split(np.asarray(position_bias, np.float64), 2, axis=-1)
    if groups == 0:
        return np.zeros((0, columns // 2))
    first = np.zeros((1, ratio, columns // 2))
    kv = np.concatenate([np.concatenate([first, kv_overlap[:-1]]), kv_own], axis=1)
    score_overlap = np.concatenate([first - np.inf, (score_overlap + bias_overlap)[:-1]])
    logits = np.concatenate([score_overlap, score_own + bias_own], axis=1)
    top = logits.max(axis=1, keepdims=True)
    z = logits - top
    share = np.exp(z)
    share /= share.sum(axis=1, keepdims=True)
    out = (share * kv).sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        eta = model.unit * (np.abs(logits) + np.abs(top) + np.abs(z) * (1 + EXP_ROUNDINGS_PER_UNIT) + EXP_ROUNDINGS)
        moved = np.where(share > 0, share * np.abs(kv - out) * np.expm1(2 * eta), 0.0)
    sums = model.gamma(2 * model.roundings(2 * ratio) + 3)
    return moved.sum(axis=1) + sums * (share * np.abs(kv)).sum(axis=1) + FP32_TINY * np.abs(kv).sum(axis=1)


def key_bound(
    keys: KeyStages,
    norm_weight: np.ndarray,
    rope_table: np.ndarray,
    positions: np.ndarray,
    conventions: Conventions,
    model: AccumulatorModel,
) -> RotatedBound:
    """Bounds along the key path, from exact pooled keys."""
    c = conventions
    bound = (_rms_bound if c.norm == "rms" else _layer_bound)(keys, norm_weight, c, model)
    normed = _after_point("normed", keys.unrounded_normed, bound, c)
    bound = _rope_bound(keys.normed, normed, rope_table, positions, c, model)
    roped = _after_point("key-roped", keys.unrounded_roped, bound, c)
    rotated = _rotate_bound(keys.roped, roped, c.hadamard_key, c, model)
    order = lane_permutation(c.lane_order_key, keys.rotated.shape[-1])
    return RotatedBound(normed, roped, _after_point("key-rotated", keys.unrounded_rotated, rotated[..., order], c))


def query_bound(
    query: np.ndarray,
    stages: QueryStages,
    rope_table: np.ndarray,
    positions: np.ndarray,
    conventions: Conventions,
    model: AccumulatorModel,
) -> RotatedBound:
    """Bounds along the query path, from an exact query [rows, heads, head_dim]."""
    c = conventions
    nothing = np.zeros(query.shape)
    bound = _rope_bound(np.asarray(query, np.float64), nothing, rope_table, positions, c, model)
    roped = _after_point("query-roped", stages.unrounded_roped, bound, c)
    rotated = _rotate_bound(stages.roped, roped, c.hadamard_query, c, model)
    order = lane_permutation(c.lane_order_query, query.shape[-1])
    return RotatedBound(nothing, roped, _after_point("query-rotated", stages.unrounded_rotated, rotated[..., order], c))


def _rms_bound(keys: KeyStages, weight: np.ndarray, c: Conventions, model: AccumulatorModel) -> np.ndarray:
    """The sum of squares is relatively right to gamma_(n+2) with mean and eps; its root halves that."""
    del weight, c
    n = keys.pooled.shape[-1]
    return model.gamma((model.roundings(n) + 3) / 2 + RSQRT_ROUNDINGS + 3) * np.abs(keys.normed) + FP32_TINY


def _layer_bound(keys: KeyStages, weight: np.ndarray, c: Conventions, model: AccumulatorModel) -> np.ndarray:
    """The mean is off by gamma mean|x|; that shifts every centred element and the variance."""
    x = keys.pooled
    n = x.shape[-1]
    centred = x - x.mean(axis=-1, keepdims=True)
    shift = model.gamma(model.roundings(n) + 1) * np.abs(x).mean(axis=-1, keepdims=True)
    moved = shift + model.gamma(1) * np.abs(centred)
    variance = (centred**2).mean(axis=-1, keepdims=True) + c.norm_eps
    squares = (2 * np.abs(centred) * moved + moved**2).mean(axis=-1, keepdims=True) / variance
    relative = (squares + model.gamma(model.roundings(n) + 3)) / 2 + model.gamma(RSQRT_ROUNDINGS + 3)
    gain = np.abs(np.asarray(weight, np.float64)) / np.sqrt(variance)
    scaled = gain * (moved + (np.abs(centred) + moved) * relative)
    return scaled + model.gamma(1) * (np.abs(keys.normed) + scaled) + FP32_TINY


def _rope_bound(
    x: np.ndarray, bound: np.ndarray, table: np.ndarray, positions: np.ndarray, c: Conventions, model: AccumulatorModel
) -> np.ndarray:
    """Two products and a sum: gamma_3 (|a c| + |b s|), plus the inputs' errors turned with them."""
    return _rope_magnitude(bound + model.gamma(3) * np.abs(x), table, positions, c)


def _rope_magnitude(x: np.ndarray, table: np.ndarray, positions: np.ndarray, c: Conventions) -> np.ndarray:
    """|a| |c| + |b| |s| and |a| |s| + |b| |c|: the larger of the turns by +angle and -angle."""
    plus = np.abs(np.asarray(table, np.float64))
    minus = plus * np.tile([1.0, -1.0], table.shape[1] // 2)
    turns = [rope(x, t, positions, pairing=c.rope_pairing, dims=c.rope_dims) for t in (plus, minus)]
    return np.maximum(*turns)


def _rotate_bound(x: np.ndarray, bound: np.ndarray, on: bool, c: Conventions, model: AccumulatorModel) -> np.ndarray:
    """Every output is a signed sum of all inputs: one value a vector."""
    if not on:
        return bound
    n = x.shape[-1]
    total = (bound + model.gamma(model.roundings(n) + 3) * (np.abs(x) + bound)).sum(axis=-1, keepdims=True)
    divisor = np.sqrt(n) if c.hadamard_scale == "orthonormal" else 1.0
    return np.broadcast_to(total / divisor, x.shape)


def _after_point(point: str, values: np.ndarray, bound: np.ndarray, c: Conventions) -> np.ndarray:
    """A bf16 point removes an error that crosses no rounding boundary and makes the others a whole step.

    ``values`` are those before rounding. Rounding the ends of the interval is enough, since rounding
    is monotone.
    """
    if point not in c.bf16_points:
        return bound
    rounded = round_bf16(values)
    return np.maximum(round_bf16(values + bound) - rounded, rounded - round_bf16(values - bound))

"""Forward error bounds of the stages up to quantisation, derived from float32 arithmetic.

Each function takes the float64 input of a stage with a bound on how far an implementation's input
may be from it, and returns a bound on how far the implementation's output may be from the float64
output. All are elementwise, non-negative float64. Derivations use gamma_n of N. J. Higham, Accuracy
and Stability of Numerical Algorithms (2nd ed., 2002), lemma 3.1 (``models``): n roundings together
change a number by a factor within 1 +- gamma_n. An operation whose result is below 2^-126 may lose
it whole (flush to zero).
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
"""An approximate reciprocal square root is within 2 ulp, each up to two unit roundoffs."""

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

    The largest logit is subtracted before the exponential, and sums run in any order the model allows.
    A logit is rounded once (u |l|), the maximum likewise, their difference once (u |z|), and the
    exponential adds its own roundings, so it is off by a factor within exp(+-eta): p becomes
    p (1 + d), |d| <= h = expm1(eta). With shares s = p / sum p and the quotient formed exactly,

        out' - out = sum s d (kv - out) / (1 + sum s d),

    which is at most sum s h |kv - out| / (1 - sum s h); a weighted mean also never leaves the range of
    its values. The products, the two sums and the quotient then add gamma of their roundings times the
    mean of |kv| under the same moved shares. Shares and products below 2^-126 may be lost.
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
    with np.errstate(invalid="ignore", over="ignore"):
        eta = model.unit * (np.abs(logits) + np.abs(top) + np.abs(z) * (1 + EXP_ROUNDINGS_PER_UNIT) + EXP_ROUNDINGS)
        wrong = np.where(share > 0, share * np.expm1(eta), 0.0)
    _, moved, lost = _moved_mean(kv, share, wrong)
    mean, spread, _ = _moved_mean(np.abs(kv), share, wrong)
    return moved + model.gamma(2 * model.roundings(2 * ratio) + 3) * (mean + spread) + FP32_TINY * lost


def _moved_mean(values: np.ndarray, share: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean of ``values`` over axis 1 under ``share``, how far shares off by ``wrong`` move it, and the
    factor of 2^-126 that lost shares and products cost."""
    mean = (share * values).sum(axis=1, keepdims=True)
    distance = np.abs(values - mean)
    total = wrong.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(total < 1, (wrong * distance).sum(axis=1) / (1 - total), np.inf)
    lost = 2 * (distance.sum(axis=1) + values.shape[1] + 1)
    return mean[:, 0], np.minimum(moved, distance.max(axis=1)), lost


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
    """The mean of squares plus eps is relatively right to gamma_(roundings + 3): product, mean and eps.

    Its inverse square root halves that and adds its own roundings; two products follow, and one
    rounding is left over, which covers the second order of the halving.
    """
    n = keys.pooled.shape[-1]
    relative = model.gamma((model.roundings(n) + 3) / 2 + RSQRT_ROUNDINGS + 3)
    inverse = 1 / np.sqrt((keys.pooled**2).mean(axis=-1, keepdims=True) + c.norm_eps)
    return relative * np.abs(keys.unrounded_normed) + FP32_TINY * _product_losses(keys.pooled, weight, inverse)


def _layer_bound(keys: KeyStages, weight: np.ndarray, c: Conventions, model: AccumulatorModel) -> np.ndarray:
    """LayerNorm with the mean removed before squaring.

    The mean is off by gamma mean|x|, a centred element by that and one rounding: d. The variance moves
    by a factor within 1 +- t, t from mean(2 |c| d + d^2) / variance and the roundings of its sum, but
    never below eps. The element, the inverse root, the weight and the bias follow.
    """
    x = keys.pooled
    n = x.shape[-1]
    one = model.gamma(1)
    centred = np.abs(x - x.mean(axis=-1, keepdims=True))
    shift = model.gamma(model.roundings(n) + 1) * np.abs(x).mean(axis=-1, keepdims=True)
    moved = shift + one * (centred + shift)
    variance = (centred**2).mean(axis=-1, keepdims=True) + c.norm_eps
    roundings = model.gamma(model.roundings(n) + 3)
    squares = (2 * centred * moved + moved**2).mean(axis=-1, keepdims=True) / variance
    wrong = squares + roundings * (1 + squares)
    least = np.maximum(variance * (1 - wrong), c.norm_eps * (1 - roundings))
    root = np.maximum(np.sqrt(variance / least) - 1, 1 - 1 / np.sqrt(1 + wrong))
    relative = root + model.gamma(RSQRT_ROUNDINGS + 3) * (1 + root)
    inverse = 1 / np.sqrt(least)
    gain = np.abs(np.asarray(weight, np.float64)) / np.sqrt(variance)
    scaled = gain * (moved + (centred + moved) * relative)
    scaled += FP32_TINY * _product_losses(centred + moved, weight, inverse)
    return scaled + one * (np.abs(keys.unrounded_normed) + scaled)


def _product_losses(x: np.ndarray, weight: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """What losses of 1 on the way to x * inverse * weight, multiplied in any order, may grow to together."""
    return 4 * (1 + np.abs(x)) * (1 + np.abs(np.asarray(weight, np.float64))) * (1 + inverse)


def _rope_bound(
    x: np.ndarray, bound: np.ndarray, table: np.ndarray, positions: np.ndarray, c: Conventions, model: AccumulatorModel
) -> np.ndarray:
    """Two products and a sum: gamma_3 (|a c| + |b s|), plus the inputs' errors turned with them."""
    moved = bound + model.gamma(3) * (np.abs(x) + bound)
    return _rope_magnitude(moved, table, positions, c) + 3 * FP32_TINY


def _rope_magnitude(x: np.ndarray, table: np.ndarray, positions: np.ndarray, c: Conventions) -> np.ndarray:
    """|a| |c| + |b| |s| and |a| |s| + |b| |c|: the larger of the turns by +angle and -angle."""
    plus = np.abs(np.asarray(table, np.float64))
    minus = plus * np.tile([1.0, -1.0], table.shape[1] // 2)
    turns = [rope(x, t, positions, pairing=c.rope_pairing, dims=c.rope_dims) for t in (plus, minus)]
    return np.maximum(*turns)


def _rotate_bound(x: np.ndarray, bound: np.ndarray, on: bool, c: Conventions, model: AccumulatorModel) -> np.ndarray:
    """Every output is a signed sum of all inputs, in any order or tree, and a factor: one value a vector."""
    if not on:
        return bound
    n = x.shape[-1]
    moved = bound + model.gamma(model.roundings(n) + 3) * (np.abs(x) + bound) + 2 * FP32_TINY
    total = moved.sum(axis=-1, keepdims=True)
    divisor = np.sqrt(n) if c.hadamard_scale == "orthonormal" else 1.0
    return np.broadcast_to(total / divisor + FP32_TINY, x.shape)


def _after_point(point: str, values: np.ndarray, bound: np.ndarray, c: Conventions) -> np.ndarray:
    """A bf16 point removes an error that crosses no rounding boundary and makes the others a whole step.

    ``values`` are those before rounding. Rounding the ends of the interval is enough, since rounding
    is monotone.
    """
    if point not in c.bf16_points:
        return bound
    rounded = round_bf16(values)
    return np.maximum(round_bf16(values + bound) - rounded, rounded - round_bf16(values - bound))

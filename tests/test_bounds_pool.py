"""``pool_bound``: 1,000 admissible softmax poolings stay inside, one outside does not."""

from __future__ import annotations

from collections.abc import Callable

import admissible as arithmetic
import numpy as np
import pytest

from dsa_crosscheck.reference.bounds import EXP_ROUNDINGS, EXP_ROUNDINGS_PER_UNIT, pool_bound
from dsa_crosscheck.reference.models import FP32_UNIT, model
from dsa_crosscheck.reference.pool import pool

COUNT = 1000
GROUPS, RATIO, DIM = 3, 4, 16
Array = np.ndarray
KINDS = ("plain", "wide logits", "large logits", "one sign", "far values")


def pool_inputs(kind: str) -> tuple[Array, Array]:
    """Raw projections [tokens, 4 * dim] and position bias [ratio, 2 * dim]."""
    rng = np.random.default_rng([31, *kind.encode()])
    kv = rng.standard_normal((GROUPS * RATIO, 4 * DIM))
    bias = rng.standard_normal((RATIO, 2 * DIM))
    logits, values = kv[:, 2 * DIM :], kv[:, : 2 * DIM]
    if kind == "wide logits":
        logits *= 40
    elif kind == "large logits":
        logits += 3e4
    elif kind == "one sign":
        values[:] = np.abs(values) + 5
    elif kind == "far values":
        values *= 10.0 ** rng.uniform(-20, 3, values.shape)
    return kv.astype(np.float32), bias.astype(np.float32)


def slots(kv_score: Array, bias: Array) -> tuple[Array, Array]:
    """Values and logits of the eight slots, [8, groups, dim]; the first group has no overlap."""
    windows = kv_score.reshape(GROUPS, RATIO, 2, 2, DIM)
    values, logits = windows[:, :, 0], windows[:, :, 1] + bias.reshape(RATIO, 2, DIM)
    before, before_logits = np.zeros_like(values[:, :, 0]), np.full_like(values[:, :, 0], -np.inf)
    before[1:], before_logits[1:] = values[:-1, :, 0], logits[:-1, :, 0]
    both = np.concatenate([before, values[:, :, 1]], axis=1), np.concatenate([before_logits, logits[:, :, 1]], axis=1)
    return np.moveaxis(both[0], 1, 0), np.moveaxis(both[1], 1, 0)


def implementations(
    kind: str,
    count: int,
    seed: int,
    *,
    tree: bool = False,
    exp_error: float = 1.0,
    signs: Array | None = None,
    shares: Callable[[Array], Array] | None = None,
) -> Array:
    """Pooled keys [count, groups, dim]; ``exp_error``: of an exponential, in units of what the model allows.

    ``signs`` [8, groups, dim] of those errors, random without; ``shares`` rounds the exponentials.
    """
    rng = np.random.default_rng(seed)
    values, logits = (np.broadcast_to(x, (count, *x.shape)) for x in slots(*pool_inputs(kind)))
    z = logits - logits.max(axis=1, keepdims=True)
    exact = np.exp(z.astype(np.float64))
    # One unit of the allowance is the rounding to float32.
    room = EXP_ROUNDINGS - 1 + EXP_ROUNDINGS_PER_UNIT * np.where(np.isfinite(z), np.abs(z), 0)
    way_off = rng.choice([-1, 1], z.shape) if signs is None else signs
    share = (exact * (1 + exp_error * FP32_UNIT * room * way_off)).astype(np.float32)
    share = shares(share) if shares else share
    adds = (arithmetic.balanced_tree,) if tree else (arithmetic.chain, arithmetic.random_tree, arithmetic.balanced_tree)
    dots = arithmetic.BALANCED if tree else arithmetic.ANY
    out = np.empty((count, GROUPS, DIM), np.float32)
    for way, part in arithmetic.parts(count, 2 * len(dots)):
        total = adds[way % len(adds)](share[part], rng)
        if way % 2:
            out[part] = dots[way // 2](share[part] / total[:, None], values[part], rng)
        else:
            out[part] = dots[way // 2](share[part], values[part], rng) / total
    return out


def ratio(kind: str, got: Array, name: str = "ieee-fp32") -> float:
    kv_score, bias = pool_inputs(kind)
    return arithmetic.worst(got.astype(np.float64) - pool(kv_score, bias), pool_bound(kv_score, bias, model(name)))


@pytest.mark.parametrize("name", ["ieee-fp32", "fp32-tree"])
def test_a_thousand_admissible_poolings_stay_within_the_bound(name: str) -> None:
    ratios = {k: ratio(k, implementations(k, COUNT, i, tree=name == "fp32-tree"), name) for i, k in enumerate(KINDS)}
    assert max(ratios.values()) <= 1.0, ratios
    assert min(ratios.values()) > 1e-2, ratios


def test_shares_that_nobody_can_know_leave_the_range_of_the_values() -> None:
    kv_score, bias = pool_inputs("plain")
    kv_score[:, 2 * DIM :] *= np.float32(1e9)
    bound = pool_bound(kv_score, bias, model("ieee-fp32"))
    values, _ = slots(kv_score, bias)
    farthest = np.abs(values - pool(kv_score, bias)).max(axis=0)
    assert (bound >= farthest).all()
    assert (bound <= farthest * 1.0001).all()


@pytest.mark.parametrize("rounding", [arithmetic.to_bf16, arithmetic.to_fp16])
def test_narrow_shares_exceed_the_bound(rounding: Callable[[Array], Array]) -> None:
    assert ratio("plain", implementations("plain", 20, 1, shares=rounding)) > 1.0


def test_an_exponential_of_many_times_its_error_exceeds_the_bound() -> None:
    assert ratio("plain", implementations("plain", 200, 2, exp_error=30.0)) > 1.0
    assert ratio("plain", implementations("plain", 200, 2, exp_error=1.0)) <= 1.0


def test_exponentials_that_conspire_nearly_reach_the_bound() -> None:
    """Shares of values above the mean too large, of those below too small, by all that the model allows."""
    kv_score, bias = pool_inputs("plain")
    values, _ = slots(kv_score, bias)
    signs = np.sign(values - pool(kv_score, bias))
    assert 0.25 < ratio("plain", implementations("plain", COUNT, 3, signs=signs)) <= 1.0


def test_no_groups_no_bound() -> None:
    kv_score, bias = pool_inputs("plain")
    assert pool_bound(kv_score[:3], bias, model("ieee-fp32")).shape == (0, DIM)

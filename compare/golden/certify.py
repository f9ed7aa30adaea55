"""How far a float64 result computed elsewhere may be from the one in a fixture.

Another machine, JAX version or thread count adds float64 numbers in another order. Rounding before
hashing cannot hide that: whatever the grid, some value lies next to a rounding boundary and some
ulp pushes it over. So integers, bytes and float32 numbers are compared bit by bit, and float64
results by a bound: the very derivations that bound a float32 kernel, with float64's unit roundoff.
A regenerated fixture whose every array passes keeps the arrays it has, and with them its hashes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsa_crosscheck.compare.golden.contents import Contents
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.bounds import pool_bound
from dsa_crosscheck.reference.models import AccumulatorModel

FLOAT64 = AccumulatorModel("float64", "float64 with any summation order", unit=2.0**-53)
WEIGHT_ROUNDINGS = 6
"""Two square roots, their product, two products with it, and one to spare."""
BOUND_FORMULA = 64
"""Roundings in the formula of a bound, beside those of its sums."""


def float64_limits(contents: Contents) -> dict[str, np.ndarray]:
    """By array, how far two float64 computations of it may be apart: twice the bound of one.

    Arrays that are not here must be equal to the bit. So must scores that the conventions round,
    which a last bit moves by a whole step or not at all.
    """
    inputs, conventions = contents.inputs, contents.conventions
    setup = Setup(inputs, conventions, FLOAT64)
    once: dict[str, np.ndarray] = {}
    if inputs.kv_score is not None and inputs.position_bias is not None:
        once["pooled_stretch"] = pool_bound(inputs.kv_score, inputs.position_bias, FLOAT64)
    once |= {f"key.{stage}": getattr(setup.key_bound, stage) for stage in ("normed", "roped", "rotated")}
    once |= {f"query.{stage}": getattr(setup.query_bound, stage) for stage in ("roped", "rotated")}
    if conventions.bf16_points:
        # What a stage was before its own rounding is off by what it would be with no rounding at all;
        # the one before it, rounded, brings in no more.
        plain = Setup(inputs, replace(conventions, bf16_points=frozenset()), FLOAT64)
        once |= {f"key.unrounded_{s}": 1.01 * getattr(plain.key_bound, s) for s in ("normed", "roped", "rotated")}
        once |= {f"query.unrounded_{s}": 1.01 * getattr(plain.query_bound, s) for s in ("roped", "rotated")}
    weights = FLOAT64.gamma(WEIGHT_ROUNDINGS)
    once["query.weights"] = weights * np.abs(setup.trace.weights)
    scores, once["scores"] = setup.shared_scores
    drift = once["scores"] + weights * scores.magnitude
    row = drift.max(axis=1, initial=0.0)
    if conventions.score_rounding == "none":
        once["trace.scores"] = drift
        once["margin"] = 2 * row
    # Bounds are sums and products of magnitudes: relatively right to the roundings of their formula.
    formula = BOUND_FORMULA + inputs.geometry.heads + inputs.geometry.head_dim
    once["bounds"] = FLOAT64.gamma(formula) * contents.bounds
    return {name: 2 * bound for name, bound in once.items()}

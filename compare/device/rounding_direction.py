"""Which way a scorer rounds a sum that does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.device.exact_products import HEAD_DIM, score_products

FRACTIONS = (0.25, 0.5, 0.5625, 0.75, -0.25, -0.75)
"""Of the last bit; 0.5625 is little more than half of it."""

DIRECTIONS: dict[tuple[float, float], str] = {(1, 1): "nearest", (0, 0): "toward zero", (0, 1): "down", (1, 0): "up"}
"""By what 3/4 of a last bit adds to the size of a positive and of a negative sum, in last bits."""


@dataclass(frozen=True)
class Fractions:
    """What became of fractions of a last bit, in last bits, float64 [i, j]; NaN where there is no such sum.

    ``positive``: change of a positive sum, by fraction; ``negative``: growth of a negative sum by 3/4.
    """

    positive: dict[float, np.ndarray]
    negative: np.ndarray

    def direction(self, order_known: np.ndarray | None) -> str | None:
        """Row of ``DIRECTIONS``, or ``mixed``; None where it could not be seen.

        ``order_known`` bool [i, j]: where the last element is known to be added last. A negative sum counts
        there, and without it wherever it came out in whole last bits.
        """
        up, down = self.positive[0.75], self.negative
        down = down[order_known] if order_known is not None else down[down == np.round(down)]
        pairs = {(a, b) for a in _values(up) for b in _values(down)}
        seen = {DIRECTIONS.get(pair, "mixed") for pair in pairs}
        return None if not seen else seen.pop() if len(seen) == 1 else "mixed"


def fractions_of_last_bit(candidate: Any, power: float, spread: int) -> Fractions:
    """Add fractions of the last bit, ``power`` times 2^-``spread``, of sums of that size.

    A positive sum is 1.5 ``power``, even in last bits and one last bit from both neighbours. A negative one
    is -1.25 times half of ``power``, brought back to a positive score by 1.75 at the last element: the two
    have one exponent, so that a last bit stays the same.
    """
    last = power * 2.0**-spread
    positive = {f: (score_products(candidate, 1.5 * power, f * last) - 1.5 * power) / last for f in FRACTIONS}
    half, last = power / 2, last / 2
    back = score_products(candidate, -1.25 * half, -0.75 * last, (HEAD_DIM - 1, 1.75 * half))
    return Fractions(positive, (0.5 * half - back) / last)


def addend_direction(candidate: Any, power: float, spread: int, where: np.ndarray) -> str | None:
    """What an alignment to ``power`` does to 3/4 of the last bit that it keeps; None for no ``where``."""
    if not where.any():
        return None
    last = power * 2.0**-spread
    got = score_products(candidate, -power, 0.75 * last, (0, power))
    names: dict[tuple[float, ...], str] = {(0.0,): "toward zero", (last,): "nearest"}
    return names.get(tuple(_values(got[where])), "mixed")


def _values(array: np.ndarray) -> list[float]:
    """Distinct values, without NaN."""
    found: list[float] = np.unique(array[~np.isnan(array)]).tolist()
    return found

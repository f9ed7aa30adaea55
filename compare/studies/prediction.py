"""Expected overlap from two numbers: how dense scores are at the k-th, and how large the noise is.

With f keys a unit of score at the k-th value and an independent error of standard deviation sigma, a
key at distance x above the boundary falls below it with probability P(error < -x). Integrated over x,
f E[|error|] / 2 keys leave, and as many enter: f sigma / sqrt(2 pi) for a normal error. It holds
while f is constant over a few sigma, and while errors are no larger at the top than elsewhere.
"""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.studies.ranking import ExactRow

WINDOW = 8
"""Density is measured over the ranks k - k/8 to k + k/8."""


def score_density(row: ExactRow, k: int) -> float:
    """Keys a unit of exact score around the k-th largest; inf where the scores of the window are all equal.

    NaN when the window reaches past the row: k + k/8 must be below the row's n.
    """
    half = max(1, k // WINDOW)
    if k + half > row.descending.size:
        return float("nan")
    width = row.descending[k - 1 - min(half, k - 1)] - row.descending[k + half - 1]
    return (half + min(half, k - 1)) / width if width > 0 else float("inf")


def near_boundary(row: ExactRow, k: int) -> np.ndarray:
    """Keys whose exact rank is between k/2 and 3k/2, as a mask [n]."""
    upper = row.descending[k // 2]
    lower = row.descending[min(k + k // 2, row.descending.size) - 1]
    return (row.scores <= upper) & (row.scores >= lower)


def predicted_overlap(row: ExactRow, error: np.ndarray, k: int, *, near: bool) -> float:
    """Overlap expected at k for a normal error with the standard deviation of ``error`` [n].

    ``near``: the deviation of keys around the boundary instead of all. Never below 0; NaN where the
    density is not a finite number, since equal scores have no rate of crossing.
    """
    density = score_density(row, k)
    if not np.isfinite(density):
        return float("nan")
    sigma = float(np.std(error[near_boundary(row, k)] if near else error))
    return max(0.0, 1.0 - density * sigma / (np.sqrt(2 * np.pi) * k))

"""The margin at which a format still finds 95 % of needles: probit regression of found on margin."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri

RECALL = 0.95
RESAMPLES = 400
FEWEST = 20
"""Needles below which nothing is fitted."""
BIN = 0.1
"""Margins are pooled to this width, far below the width of the curve (1): all resamples are then fitted at once."""
STEPS = 20
LIMITS = np.array([[-20.0, 0.05], [20.0, 20.0]])
"""Intercept and slope stay within these: data that one margin separates has no finite best slope."""


def smallest_margin(margins: np.ndarray, found: np.ndarray) -> tuple[float, float, float]:
    """Margin where the fitted chance of being found is 95 %, and its 95 % bootstrap interval over needles.

    ``margins`` float64 [n], ``found`` bool [n]. The model is P(found) = Phi(a + b margin) with b > 0. NaN
    where the data can't tell: fewer than ``FEWEST`` needles, or all found, or none.
    """
    if margins.size < FEWEST or found.all() or not found.any():
        return (float("nan"),) * 3
    bins = np.floor(margins / BIN).astype(np.int64)
    cells, where = np.unique(np.stack([bins, found]), axis=1, return_inverse=True)
    where = where.reshape(-1)
    counts = np.bincount(where)
    centres = np.bincount(where, weights=margins) / counts
    hit = cells[1] == 1
    resampled = np.random.default_rng(0).multinomial(margins.size, counts / margins.size, size=RESAMPLES)
    # A resample that finds all or none has no threshold, as the data themselves would have none.
    both = resampled[:, hit].any(axis=1) & resampled[:, ~hit].any(axis=1)
    fitted = _thresholds(centres, hit, np.concatenate([counts[None], resampled[both]]))
    low, high = np.quantile(fitted[1:], [0.025, 0.975]) if fitted.size > 1 else (np.nan, np.nan)
    return float(fitted[0]), float(low), float(high)


def _thresholds(centres: np.ndarray, hit: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Margin of 95 % recall for each row of ``counts`` [samples, cells], by Fisher scoring."""
    sign = np.where(hit, 1.0, -1.0)
    line = np.stack([np.ones(centres.size), centres])
    fit = np.tile([0.0, 1.0], (counts.shape[0], 1))
    for _ in range(STEPS):
        z = np.clip(fit @ line, -30, 30)
        log_density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
        # phi / Phi and phi^2 / (Phi (1 - Phi)) from logarithms: far tails keep their ratio.
        slope = (counts * sign * np.exp(log_density - log_ndtr(sign * z))) @ line.T
        weight = counts * np.exp(2 * log_density - log_ndtr(z) - log_ndtr(-z))
        information = np.einsum("sc,ic,jc->sij", weight, line, line) + 1e-9 * np.eye(2)
        step = np.linalg.solve(information, slope[..., None])[..., 0]
        fit = np.clip(fit + np.clip(step, -1, 1), *LIMITS)
    return (ndtri(RECALL) - fit[:, 0]) / fit[:, 1]

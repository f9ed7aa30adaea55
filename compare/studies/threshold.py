"""The margin at which a format still finds 95 % of needles: probit regression of found on margin."""

from __future__ import annotations

import numpy as np
from scipy import optimize, stats

RECALL = 0.95
RESAMPLES = 200


def smallest_margin(margins: np.ndarray, found: np.ndarray) -> tuple[float, float, float]:
    """Margin where the fitted chance of being found is 95 %, and its 95 % bootstrap interval.

    ``margins`` float64 [n], ``found`` bool [n]. The model is P(found) = Phi(a + b margin) with b > 0. NaN
    where the data can't tell: fewer than 20 needles, or all found, or none.
    """
    estimate = _fit(margins, found)
    if np.isnan(estimate):
        return estimate, estimate, estimate
    generator = np.random.default_rng(0)
    picks = generator.integers(margins.size, size=(RESAMPLES, margins.size))
    sample = np.array([_fit(margins[pick], found[pick]) for pick in picks])
    low, high = np.nanquantile(sample, [0.025, 0.975]) if np.isfinite(sample).any() else (np.nan, np.nan)
    return estimate, float(low), float(high)


def _fit(margins: np.ndarray, found: np.ndarray) -> float:
    if margins.size < 20 or found.all() or not found.any():
        return float("nan")
    sign = np.where(found, 1.0, -1.0)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        intercept, log_slope = parameters
        slope = np.exp(log_slope)
        z = sign * (intercept + slope * margins)
        log_chance = stats.norm.logcdf(z)
        # phi / Phi, in logarithms so that far tails keep their ratio.
        hazard = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_chance) * sign
        return -log_chance.sum(), -np.array([hazard.sum(), (hazard * margins * slope).sum()])

    done = optimize.minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-20, 20), (-6, 6)])
    intercept, log_slope = done.x
    return float((stats.norm.ppf(RECALL) - intercept) / np.exp(log_slope))

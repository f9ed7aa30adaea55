"""Confidence intervals of the studies, at 95 %."""

from __future__ import annotations

import numpy as np
from scipy import stats

LEVEL = 0.95
RESAMPLES = 400


def student_interval(seed_means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high of the mean of ``seed_means`` [seeds, ...] by Student's t, NaN entries left out.

    NaN with fewer than two seeds: one mean has no spread.
    """
    count = np.isfinite(seed_means).sum(axis=0)
    enough = count >= 2
    total = np.nansum(seed_means, axis=0)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    squares = np.nansum((seed_means - mean) ** 2, axis=0)
    variance = np.divide(squares, count - 1, out=np.full(total.shape, np.nan), where=enough)
    half = stats.t.ppf((1 + LEVEL) / 2, np.maximum(count - 1, 1)) * np.sqrt(variance / np.maximum(count, 1))
    return mean - half, mean + half


def bootstrap_weights(count: int, seed: int = 0) -> np.ndarray:
    """How often each of ``count`` rows is drawn in each resample, [RESAMPLES, count]."""
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)


def bootstrap_mean_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Low and high percentiles of the resampled mean of ``values`` [rows, cells], NaN left out; NaN without rows."""
    weights = bootstrap_weights(values.shape[0]).astype(np.float64)
    present = np.isfinite(values)
    drawn = weights @ present
    means = np.divide(
        weights @ np.where(present, values, 0.0), drawn, out=np.full(drawn.shape, np.nan), where=drawn > 0
    )
    return _percentiles(means)


def bootstrap_quantile_interval(values: np.ndarray, quantile: float) -> tuple[np.ndarray, np.ndarray]:
    """The same for a quantile. A low quantile of few rows is close to their least, and its interval one-sided."""
    rows, cells = values.shape
    picks = np.random.default_rng(0).integers(rows, size=(RESAMPLES, rows))
    found = np.full((RESAMPLES, cells), np.nan)
    for cell in range(cells):
        column = values[:, cell]
        column = column[np.isfinite(column)]
        if column.size:
            found[:, cell] = np.quantile(column[picks % column.size], quantile, axis=1)
    return _percentiles(found)


def _percentiles(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out = np.full((2, samples.shape[1]), np.nan)
    measured = np.isfinite(samples).any(axis=0)
    if measured.any():
        out[:, measured] = np.nanquantile(samples[:, measured], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return out[0], out[1]


def wilson_interval(found: np.ndarray, tried: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson score interval of the proportion ``found / tried``; NaN where nothing was tried.

    Unlike found/tried +- its standard error it stays inside [0, 1] and has width at 0 and 1.
    Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927).
    """
    found, tried = np.asarray(found, np.float64), np.asarray(tried, np.float64)
    z = stats.norm.ppf((1 + LEVEL) / 2)
    n = np.where(tried > 0, tried, np.nan)
    share = found / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)

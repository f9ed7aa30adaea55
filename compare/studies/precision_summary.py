"""Means, tails and intervals of the precision study over seeds and rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.reports.merge import SUMMARY
from dsa_crosscheck.compare.studies.statistics import (
    bootstrap_mean_interval,
    bootstrap_quantile_interval,
    student_interval,
)

REPLICATES = ("seed", "row")
AVERAGED = ("snr", "swap_depth_mean", "swap_depth_max", "mass_lost", "predicted", "predicted_near", "tie_overlap")


def summarise(dataset: xr.Dataset) -> xr.Dataset:
    """``dataset`` with, for overlap over seeds and rows:

    ``overlap_mean``; ``overlap_low``, ``overlap_high``: 95 % by Student's t over seed means, or where a
    family has one seed by a bootstrap over its rows; ``overlap_rows_low``, ``overlap_rows_high``: the
    bootstrap over rows of all seeds; ``overlap_p1`` with its bootstrap interval; ``overlap_worst``.
    And ``<name>_average`` for each of ``AVERAGED``.
    """
    overlap = dataset.overlap.transpose(..., *REPLICATES)
    outer = overlap.dims[:-2]
    seeds, rows = overlap.sizes["seed"], overlap.sizes["row"]
    flat = overlap.values.reshape(-1, seeds, rows)
    seed_mean = _mean(flat, 2)
    mean = _mean(flat.reshape(flat.shape[0], -1), 1)
    pooled = flat.reshape(flat.shape[0], -1).T
    low, high = student_interval(seed_mean.T)
    rows_low, rows_high = bootstrap_mean_interval(pooled)
    p1_low, p1_high = bootstrap_quantile_interval(pooled, 0.01)
    one_seed = np.isnan(low)
    found = {
        "overlap_mean": (mean, "mean overlap"),
        "overlap_low": (
            np.where(one_seed, rows_low, low),
            "95 % low of the mean: t over seeds, or bootstrap over rows",
        ),
        "overlap_high": (
            np.where(one_seed, rows_high, np.minimum(high, 1.0)),
            "95 % high of the mean: t over seeds, or bootstrap over rows",
        ),
        "overlap_rows_low": (rows_low, "95 % low of the mean: bootstrap over rows"),
        "overlap_rows_high": (rows_high, "95 % high of the mean: bootstrap over rows"),
        "overlap_p1": (_reduced(np.nanquantile, pooled, 0.01), "first percentile of rows"),
        "overlap_p1_low": (p1_low, "95 % low of the first percentile: bootstrap over rows"),
        "overlap_p1_high": (p1_high, "95 % high of the first percentile: bootstrap over rows"),
        "overlap_worst": (_reduced(np.nanmin, pooled), "worst row"),
    }
    shape = [overlap.sizes[d] for d in outer]
    summaries = {
        name: (outer, values.reshape(shape), {"long_name": what, "units": "1", "role": SUMMARY})
        for name, (values, what) in found.items()
    }
    for name in AVERAGED:
        variable = dataset[name].transpose(..., *REPLICATES)
        values = variable.values.reshape(*variable.shape[:-2], -1)
        attributes = {**dataset[name].attrs, "role": SUMMARY}
        attributes["long_name"] = f"mean over seeds and rows: {attributes['long_name']}"
        # An infinite ratio (no error at all) has no place in a mean of decibels.
        mean_of = np.where(np.isfinite(values), values, np.nan)
        summaries[f"{name}_average"] = (variable.dims[:-2], _mean(mean_of, -1), attributes)
    return dataset.assign(summaries)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean without NaN; NaN where nothing is left, and without numpy's warning about it."""
    count = np.isfinite(values).sum(axis=axis)
    total = np.nansum(values, axis=axis)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _reduced(function: Callable[..., np.ndarray], pooled: np.ndarray, *args: float) -> np.ndarray:
    out = np.full(pooled.shape[1], np.nan)
    measured = np.isfinite(pooled).any(axis=0)
    if measured.any():
        out[measured] = function(pooled[:, measured], *args, axis=0)
    return out

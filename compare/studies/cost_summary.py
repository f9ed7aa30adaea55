"""Overlaps of the cost study over its rows."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.reports.merge import SUMMARY
from dsa_crosscheck.compare.studies.statistics import bootstrap_mean_interval

REPLICATES = ("row",)


def summarise(dataset: xr.Dataset) -> xr.Dataset:
    """``dataset`` with mean, 95 % interval of the mean (bootstrap over rows) and worst row of ``overlap``.

    NaN for a candidate and format that was not run.
    """
    overlap = dataset.overlap.transpose("row", "candidate", "format").values
    flat = overlap.reshape(overlap.shape[0], -1)
    low, high = bootstrap_mean_interval(flat)
    count = np.isfinite(flat).sum(axis=0)
    mean = np.divide(np.nansum(flat, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
    worst = np.where(count > 0, np.where(np.isfinite(flat), flat, np.inf).min(axis=0), np.nan)
    found = {
        "overlap_mean": (mean, "overlap, mean over rows"),
        "overlap_low": (low, "lower end of its 95 % interval"),
        "overlap_high": (high, "upper end of its 95 % interval"),
        "overlap_worst": (worst, "overlap of the worst row"),
    }
    return dataset.assign(
        {
            name: (("candidate", "format"), values.reshape(overlap.shape[1:]), _attributes(what))
            for name, (values, what) in found.items()
        }
    )


def _attributes(what: str) -> dict[str, str]:
    return {"long_name": what, "units": "1", "role": SUMMARY}

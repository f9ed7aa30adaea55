"""Recall and smallest margins of the needle study over seeds, rows, depths and strengths."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.reports.merge import SUMMARY
from dsa_crosscheck.compare.studies.statistics import wilson_interval
from dsa_crosscheck.compare.studies.threshold import smallest_margin

REPLICATES = ("seed", "probe")


def summarise(dataset: xr.Dataset) -> xr.Dataset:
    """``dataset`` with, by family, context, format and k:

    ``recall``, ``recall_low``, ``recall_high``: needles found of all planted, Wilson's 95 % interval;
    ``recall_by_depth``, ``recall_by_strength`` with theirs; ``lost_share``: of the needles that exact scores
    find, those the format loses, with ``_low`` and ``_high``; ``smallest_margin``, ``_low``, ``_high``: in
    units of the format's noise, where 95 % are found; ``smallest_gap``: that margin in standard
    deviations of the row's exact scores, with ``_low`` and ``_high``; ``noise_mean``.
    """
    found, tried = dataset.found, dataset.tried
    out: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, str]]] = {}

    def add(name: str, values: xr.DataArray, what: str, units: str = "1") -> None:
        out[name] = (
            tuple(str(d) for d in values.dims), values.values, {"long_name": what, "units": units, "role": SUMMARY}
        )  # fmt: skip

    for name, kept in (("recall", None), ("recall_by_depth", "depth"), ("recall_by_strength", "strength")):
        summed = [dim for dim in ("seed", "depth", "strength") if dim != kept]
        each = int(np.prod([dataset.sizes[dim] for dim in summed if dim != "seed"]))
        hits = found.sum(summed)
        count = (tried.sum("seed") * each).broadcast_like(hits).transpose(*hits.dims)
        low, high = wilson_interval(hits.values, count.values)
        add(name, hits / count.where(count > 0), "needles found of those planted")
        add(f"{name}_low", hits.copy(data=low), "Wilson 95 % low")
        add(f"{name}_high", hits.copy(data=high), "Wilson 95 % high")

    lost, of = xr.broadcast(dataset.lost.sum("seed"), dataset.found_exactly.sum("seed"))
    of = of.transpose(*lost.dims)
    low, high = wilson_interval(lost.values, of.values)
    add("lost_share", lost / of.where(of > 0), "needles lost of those that exact scores find")
    add("lost_share_low", lost.copy(data=low), "Wilson 95 % low")
    add("lost_share_high", lost.copy(data=high), "Wilson 95 % high")

    noise = dataset.noise.mean("seed")
    margins = np.full((3, *noise.shape), np.nan)
    probes = dataset[["probe_margin", "probe_found"]].transpose(*noise.dims, "seed", "probe")
    for at in np.ndindex(*noise.shape):
        margin = probes.probe_margin.values[at].reshape(-1)
        known = np.isfinite(margin)
        hit = probes.probe_found.values[at].reshape(-1)[known] > 0
        margins[(slice(None), *at)] = smallest_margin(margin[known], hit)
    for suffix, values in zip(("", "_low", "_high"), margins, strict=True):
        add(f"smallest_margin{suffix}", noise.copy(data=values), f"margin found at 95 %{suffix}", "noise sd")
        add(f"smallest_gap{suffix}", noise.copy(data=values) * noise, f"the same in score units{suffix}", "score sd")
    add("noise_mean", noise, "noise near the k-th key over the spread of scores")
    return dataset.assign(out)

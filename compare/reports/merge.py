"""Several runs of one study, over other seeds, families or contexts, as one dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import xarray as xr

SUMMARY = "summary"
"""Value of a variable's attribute ``role`` when it is made from others over seeds and rows."""


def merge(datasets: Sequence[xr.Dataset], summarise: Callable[[xr.Dataset], xr.Dataset]) -> xr.Dataset:
    """The union of ``datasets``, its summaries made anew.

    A cell may be in several when they agree on its values. ``ValueError`` when there is none, they are
    of different studies, or disagree.
    """
    studies = sorted({str(dataset.attrs.get("study")) for dataset in datasets})
    if len(studies) != 1:
        raise ValueError(f"`report merge` should get datasets of one study, got {studies or 'none'}")
    measured = [
        dataset.drop_vars([n for n, v in dataset.items() if v.attrs.get("role") == SUMMARY]) for dataset in datasets
    ]
    try:
        union = xr.merge(measured, join="outer", compat="no_conflicts", combine_attrs="drop_conflicts")
    except xr.MergeError as error:
        raise ValueError(f"`report merge` should get datasets that agree where they overlap: {error}") from error
    # An outer join sorts labels; names keep the order in which the runs list them.
    labels = {
        dim: list(dict.fromkeys(value for dataset in datasets for value in dataset[dim].values.tolist()))
        for dim in union.dims
        if union[dim].dtype.kind not in "iuf"
    }
    union = union.reindex(labels)
    union.attrs["command"] = "\n".join(dict.fromkeys(str(dataset.attrs["command"]) for dataset in datasets))
    return summarise(union)

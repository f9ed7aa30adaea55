"""Study ``cost``: what each storage format costs in bytes and time, beside what it keeps of the selection.

On a CPU, the selection that is compared with exact arithmetic is the one that was timed. All contenders take
turns within one run, so their ratios see the same machine. A candidate that needs a GPU makes it the bench of
``compare.device``, whose shapes are fixed.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.candidates.registry import BUILT_IN, CandidateError, plugins
from dsa_crosscheck.compare.device.contenders import CONTENDERS
from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.names import names_of
from dsa_crosscheck.compare.studies import cost_device, cost_text
from dsa_crosscheck.compare.studies.cost_run import STAGES, Contender, contender, serving_conventions
from dsa_crosscheck.compare.studies.cost_summary import summarise
from dsa_crosscheck.compare.studies.device_results import cost_dataset, cost_records
from dsa_crosscheck.compare.studies.families import FAMILIES, family_of
from dsa_crosscheck.compare.studies.formats import STORED
from dsa_crosscheck.compare.studies.ranking import ExactRow
from dsa_crosscheck.compare.studies.table import COST_ON_CPU
from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.trace import exact_scores

__all__ = ["render", "run"]

DESCRIPTIONS = {
    "seconds": ("median time of a stage", "s"),
    "seconds_low": ("fastest repeat", "s"),
    "seconds_high": ("slowest repeat", "s"),
    "ratio": ("score time over that of the first candidate in the same format, median of the repeats", "1"),
    "format_ratio": ("time of all stages over that of the first format, same candidate, median of the repeats", "1"),
    "overlap": ("share of the selected keys whose exact score reaches the exact k-th", "1"),
    "bytes_per_token": ("stored bytes of one key over the raw tokens that it stands for", "bytes"),
    "record_bytes": ("stored bytes of one key", "bytes"),
    "read_bytes": ("cache bytes that scoring must read if every row reads its keys once", "bytes"),
}

GPU_OPTIONS = ("record", "commit")
"""Options that no CPU has."""


def run(args: argparse.Namespace) -> xr.Dataset:
    """Time every candidate and format in turns, after a pass that warms up; on a GPU, see ``cost_device``.

    A candidate that has no kernel for a format is NaN there. ``ValueError`` for an option of the other place,
    a contender that is timed only beside those of a GPU, an unknown family, fewer than one repeat, sizes at
    which no row sees more keys than it selects, or a candidate that does none of the formats;
    ``CandidateError`` for one that doesn't load.
    """
    names = names_of("--candidate", args.candidate)
    on_gpu = any(one.gpu_only for one in CONTENDERS if one.name in names)
    _check_place(args, names, on_gpu)
    if on_gpu:
        return cost_device.run_on_gpu(args, names)
    left_out = {name: value for name, value in COST_ON_CPU.items() if getattr(args, name) is None}
    args = argparse.Namespace(**vars(args) | left_out)
    if args.repeats < 1:
        raise ValueError(f"`--repeats` should be at least 1, got {args.repeats}")
    if args.family not in FAMILIES:
        raise ValueError(f"`--family` should be one of {tuple(FAMILIES)}, got {args.family!r}")
    inputs = _inputs(args)
    contenders = {(c, f): contender(c, f, inputs) for c in names for f in STORED}
    for name in names:
        if all(contenders[name, f] is None for f in STORED):
            raise CandidateError(f"candidate {name!r} should do one of the formats {STORED}, and does none")
    seconds, overlap = _measure(contenders, inputs, names, args.repeats)
    dataset = _dataset(seconds, overlap, names, inputs)
    dataset = dataset.merge(cost_dataset(cost_records(args.results)))
    dataset.attrs = {
        **{name: getattr(args, name) for name in ("family", "context", "rows", "seed", "repeats")},
        "keys": int(inputs.key_counts.max(initial=0)),
        "topk": inputs.geometry.topk,
        "conventions": "sglang-v4-fp8 with the format's codec",
        **{name: str(value) for name, value in environment().items()},
    }
    return summarise(dataset)


def render(dataset: xr.Dataset) -> str:
    """The dataset as text: a GPU's record, or what a CPU took."""
    return cost_device.render(dataset) if cost_device.RECORD in dataset.attrs else cost_text.render(dataset)


def _check_place(args: argparse.Namespace, names: list[str], on_gpu: bool) -> None:
    """``ValueError`` for an option that has no meaning where the candidates run, or a contender that no CPU has."""
    if not on_gpu:
        *most, last = (one.name for one in CONTENDERS if one.gpu_only)
        beside = f"{', '.join(most)} or {last}"
        known = {*BUILT_IN, *plugins()}
        for one in CONTENDERS:
            if one.name in names and one.name not in known:
                raise ValueError(f"`--candidate` should name {one.name} only beside {beside}; got {args.candidate!r}")
    for name in COST_ON_CPU if on_gpu else GPU_OPTIONS:
        if getattr(args, name) is not None:
            where = "a GPU, whose shapes are fixed" if on_gpu else "a CPU"
            raise ValueError(f"`--{name}` should not be given for {','.join(names)}, timed on {where}")


def _inputs(args: argparse.Namespace) -> Inputs:
    inputs = family_of(args.family).build(args.context, args.rows, args.seed)
    lengths = row_lengths(inputs, "finished-groups")
    topk = args.topk if args.topk is not None else max(1, min(512, int(lengths.max(initial=0)) // 4))
    if not (lengths > topk).any():
        raise ValueError(f"`--context` should let a row see more than k={topk} keys, got {args.context}")
    return replace(inputs, geometry=replace(inputs.geometry, topk=topk))


def _measure(
    contenders: dict[tuple[str, str], Contender | None], inputs: Inputs, names: list[str], repeats: int
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds [repeat, candidate, format, stage] and overlaps [candidate, format, row]."""
    exact = exact_scores(inputs, serving_conventions(STORED[0])).values
    lengths = row_lengths(inputs, "finished-groups")
    rows = [ExactRow(exact[row, :length]) for row, length in enumerate(lengths)]
    seconds = np.full((repeats, len(names), len(STORED), len(STAGES)), np.nan)
    overlap = np.full((len(names), len(STORED), inputs.rows), np.nan)
    for repeat in range(-1, repeats):
        for (name, kind), one in contenders.items():
            if one is None:
                continue
            at = names.index(name), STORED.index(kind)
            done = one.time()
            if repeat >= 0:
                seconds[repeat, *at] = done.seconds
            else:
                overlap[at] = _overlaps(rows, done.selection)
    return seconds, overlap


def _overlaps(rows: list[ExactRow], selection: np.ndarray) -> np.ndarray:
    """Overlap of each row; NaN where all keys are selected anyway."""
    k = selection.shape[1]
    return np.array(
        [
            row.swaps(chosen).overlap if row.scores.size > k else np.nan
            for row, chosen in zip(rows, selection, strict=True)
        ]
    )


def _dataset(seconds: np.ndarray, overlap: np.ndarray, names: list[str], inputs: Inputs) -> xr.Dataset:
    scoring = seconds[..., STAGES.index("score")]
    total = seconds.sum(axis=-1)
    record = np.array([serving_conventions(f).key.record_bytes(inputs.geometry.head_dim) for f in STORED])
    visible = int(row_lengths(inputs, "finished-groups").sum())
    by_stage, by_format = ("candidate", "format", "stage"), ("candidate", "format")
    values: dict[str, tuple[Any, np.ndarray]] = {
        "seconds": (by_stage, np.median(seconds, axis=0)),
        "seconds_low": (by_stage, seconds.min(axis=0)),
        "seconds_high": (by_stage, seconds.max(axis=0)),
        "ratio": (by_format, np.median(scoring / scoring[:, :1], axis=0)),
        "format_ratio": (by_format, np.median(total / total[:, :, :1], axis=0)),
        "overlap": ((*by_format, "row"), overlap),
        "record_bytes": ("format", record),
        "bytes_per_token": ("format", record / inputs.geometry.compress_ratio),
        "read_bytes": ("format", record * visible),
    }
    dataset = xr.Dataset(values, {"candidate": names, "format": list(STORED), "stage": list(STAGES)})
    for name, (what, units) in DESCRIPTIONS.items():
        dataset[name].attrs = {"long_name": what, "units": units}
    return dataset

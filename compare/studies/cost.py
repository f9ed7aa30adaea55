"""Study ``cost``: what each storage format costs in bytes and time, beside what it keeps of the selection.

The selection that is compared with exact arithmetic is the one that was timed. All contenders take turns
within one run, so their ratios see the same machine.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from typing import Any

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.candidates.registry import CandidateError
from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.studies.cost_run import STAGES, Contender, contender, serving_conventions
from dsa_crosscheck.compare.studies.cost_summary import summarise
from dsa_crosscheck.compare.studies.cost_text import render
from dsa_crosscheck.compare.studies.device_results import CostRecord, cost_records
from dsa_crosscheck.compare.studies.families import FAMILIES, family_of
from dsa_crosscheck.compare.studies.formats import STORED
from dsa_crosscheck.compare.studies.ranking import ExactRow
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


def run(args: argparse.Namespace) -> xr.Dataset:
    """Time every candidate and format in turns, after a pass that warms up.

    A candidate that has no kernel for a format is NaN there. ``ValueError`` for an unknown family, fewer
    than one repeat, sizes at which no row sees more keys than it selects, or a candidate that does none
    of the formats; ``CandidateError`` for one that doesn't load.
    """
    if args.repeats < 1:
        raise ValueError(f"`--repeats` should be at least 1, got {args.repeats}")
    if args.family not in FAMILIES:
        raise ValueError(f"`--family` should be one of {tuple(FAMILIES)}, got {args.family!r}")
    inputs = _inputs(args)
    names = [name for name in args.candidate.split(",") if name]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"`--candidate` should name candidates once each, got {args.candidate!r}")
    contenders = {(c, f): contender(c, f, inputs) for c in names for f in STORED}
    for name in names:
        if all(contenders[name, f] is None for f in STORED):
            raise CandidateError(f"candidate {name!r} should do one of the formats {STORED}, and does none")
    seconds, overlap = _measure(contenders, inputs, names, args.repeats)
    dataset = _dataset(seconds, overlap, names, inputs)
    dataset = dataset.merge(_recorded(cost_records(args.results)))
    dataset.attrs = {
        **{name: getattr(args, name) for name in ("family", "context", "rows", "seed", "repeats")},
        "keys": int(inputs.key_counts.max(initial=0)),
        "topk": inputs.geometry.topk,
        "conventions": "sglang-v4-fp8 with the format's codec",
        **{name: str(value) for name, value in environment().items()},
    }
    return summarise(dataset)


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


def _recorded(records: list[CostRecord]) -> xr.Dataset:
    """The records as variables over ``record``, ``device_`` before each field's name."""
    variables = {}
    for field in fields(CostRecord):
        name = "device" if field.name == "device" else f"device_{field.name}"
        kind = {"str": object, "int": np.int64, "float": np.float64}[str(field.type)]
        variables[name] = ("record", np.array([getattr(record, field.name) for record in records], kind))
    return xr.Dataset(variables)

"""Study ``memory``: what each way to read an index cache asks the allocator for, predicted and measured."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.studies.budget import largest_context, largest_rows, needed, parse_bytes
from dsa_crosscheck.compare.studies.device_results import MemoryRecord, memory_records
from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.compare.studies.memory_measured import measured
from dsa_crosscheck.compare.studies.memory_text import render
from dsa_crosscheck.compare.studies.read_path import KINDS, ReadPath, ReadSizes, footprint
from dsa_crosscheck.compare.studies.read_paths_frameworks import FRAMEWORKS
from dsa_crosscheck.compare.studies.read_paths_own import OWN
from dsa_crosscheck.reference.geometry import Geometry

__all__ = ["PATHS", "render", "run"]

PATHS: tuple[ReadPath, ...] = (*OWN, *FRAMEWORKS)
DEVICE_PATHS = {"streaming": "cuda"}
DEVICE_FORMATS = {"fp8-fp32-scale": "fp8", "fp4-even": "fp4"}
"""What device results call a path or format, where that is not its own name."""

BYTES = {
    "cache": "pages of one layer",
    "query": "query codes and head weights",
    "gather": "largest tensor of keys copied for the rows",
    "head_axis": "largest tensor with a head axis",
    "logits": "largest tensor of one number a row and key",
    "largest": "largest single request",
    "largest_measured": "the same, measured",
    "peak": "most bytes held at once, inputs not counted",
    "peak_measured": "the same, measured",
    "peak_device": "the same, recorded on a device",
    "needed": "cache, query and peak",
}
"""Variables in bytes; NaN where there is no such figure."""

TEXTS = {
    "largest_name": "the largest tensor; several of one size are separated by semicolons",
    "largest_source": "the line that asks for the first of them, or where it is described",
    "largest_measured_source": "the line that asked for the largest tensor when measured",
    "basis": "how the path's requests are known",
    "device": "where the recorded figure comes from",
}


def run(args: argparse.Namespace) -> xr.Dataset:
    """One entry a path and format at ``args.context`` raw tokens and ``args.rows`` rows.

    ``ValueError`` for sizes below one key or row, or a budget that isn't a number of bytes.
    """
    geometry = Geometry()
    keys = args.context // geometry.compress_ratio
    if keys < 1 or args.rows < 1:
        least = f"{geometry.compress_ratio} and 1"
        raise ValueError(f"`--context` and `--rows` should be at least {least}, got {args.context}, {args.rows}")
    budget = parse_bytes(args.budget) if args.budget else None
    recorded = memory_records(args.results)
    entries = [
        _entry(path, name, ReadSizes(args.rows, keys, geometry, FORMATS[name]), budget, recorded)
        for path in PATHS
        for name in path.formats
    ]
    variables: dict[str, Any] = {}
    for name, what in BYTES.items():
        values = np.array([entry[name] for entry in entries], np.float64)
        variables[name] = ("path_format", values, {"long_name": what, "units": "bytes"})
    for name, what in TEXTS.items():
        variables[name] = ("path_format", np.array([entry[name] for entry in entries], object), {"long_name": what})
    if budget is not None:
        variables["budget_context"] = _fits(
            entries, "budget_context", "largest context for this chunk of rows", "raw tokens"
        )
        variables["budget_rows"] = _fits(entries, "budget_rows", "largest chunk of rows at this context", "rows")
    coords = {name: ("path_format", np.array([e[name] for e in entries], object)) for name in ("path", "format")}
    attributes: dict[str, Any] = {"context": args.context, "keys": keys, "rows": args.rows, "heads": geometry.heads}
    if budget is not None:
        attributes["budget"] = budget
    return xr.Dataset(variables, coords, {**attributes, **{n: str(v) for n, v in environment().items()}})


def _fits(entries: list[dict[str, Any]], name: str, what: str, units: str) -> tuple[str, np.ndarray, dict[str, str]]:
    return "path_format", np.array([entry[name] for entry in entries], np.int64), {"long_name": what, "units": units}


def _entry(
    path: ReadPath, format_name: str, sizes: ReadSizes, budget: int | None, recorded: list[MemoryRecord]
) -> dict[str, Any]:
    requests = path.requests(sizes)
    predicted = footprint(requests)
    seen = measured(path.name, format_name, sizes)
    device = _on_device(recorded, path.name, format_name, sizes)
    by_kind = {kind: max((r.bytes for r in requests if r.kind == kind), default=0) for kind in KINDS}
    entry: dict[str, Any] = {
        "path": path.name,
        "format": format_name,
        "cache": sizes.cache_bytes,
        "query": sizes.query_bytes,
        "gather": by_kind["gather"],
        "head_axis": by_kind["head-axis"],
        "logits": by_kind["logits"],
        "largest": predicted.largest,
        "largest_measured": seen.largest if seen else np.nan,
        "peak": predicted.peak,
        "peak_measured": seen.peak if seen else np.nan,
        "peak_device": device.peak_bytes if device else np.nan,
        "needed": needed(path, sizes),
        "largest_name": "; ".join(predicted.names),
        "largest_source": predicted.sources[0],
        "largest_measured_source": seen.sources[0] if seen else "",
        "basis": path.basis,
        "device": device.device if device else "",
    }
    if budget is not None:
        entry["budget_context"] = largest_context(path, sizes, budget)
        entry["budget_rows"] = largest_rows(path, sizes, budget)
    return entry


def _on_device(recorded: list[MemoryRecord], path: str, format_name: str, s: ReadSizes) -> MemoryRecord | None:
    wanted = (DEVICE_PATHS.get(path, path), DEVICE_FORMATS.get(format_name, format_name), s.rows, s.keys)
    return next((r for r in recorded if (r.path, r.format, r.rows, r.keys) == wanted), None)

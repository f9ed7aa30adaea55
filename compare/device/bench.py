"""The bench: every stage, format and shape, by every contender that is named, in one run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dsa_crosscheck.compare.device.cell import Cell, measure
from dsa_crosscheck.compare.device.contenders import Contender
from dsa_crosscheck.compare.device.record import head
from dsa_crosscheck.compare.device.stages import STAGES, Stage
from dsa_crosscheck.compare.device.timing import copy_bytes_per_second
from dsa_crosscheck.compare.device.verdicts import failure


def run_bench(
    contenders: Sequence[Contender],
    commit: str,
    stages: Sequence[Stage] = STAGES,
    *,
    keep: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """The record: head, ``peers`` (versions), ``copy_bytes_per_second``, ``cost`` entries and ``left_out``.

    Progress goes to standard error. ``keep`` gets the record after each case, for a run that is stopped to leave
    what it has: until the last one with ``unfinished``, the cases still to come (format, stage and sizes).
    """
    record: dict[str, Any] = {
        **head(commit),
        "peers": {one.name: one.version() for one in contenders if one.version() is not None},
        "copy_bytes_per_second": copy_bytes_per_second(),
        "cost": [],
        "left_out": [],
    }
    cases = [(stage, name, shape) for stage in stages for shape in stage.shapes for name in stage.formats]
    for number, (stage, format_name, shape) in enumerate(cases, start=1):
        cell = measure(stage, format_name, shape, contenders, record["copy_bytes_per_second"])
        record["cost"] += cell.entries
        record["left_out"] += cell.left_out
        unfinished = [{"format": name, "stage": s.name, **size.entry()} for s, name, size in cases[number:]]
        keep({**record, "unfinished": unfinished} if unfinished else record)
        _tell(stage, format_name, shape, cell)
        torch.cuda.empty_cache()
    return record


def _tell(stage: Stage, format_name: str, shape: Any, cell: Cell) -> None:
    times = "   ".join(f"{entry['candidate']} {entry['seconds'] * 1e6:.1f} us" for entry in cell.entries)
    print(f"{stage.name} {format_name} {shape}   {times}", file=sys.stderr, flush=True)
    for entry in cell.entries:
        wrong = failure(entry)
        if wrong:
            print(f"  {entry['candidate']}: {wrong}", file=sys.stderr, flush=True)
    for entry in cell.left_out:
        print(f"  {entry['candidate']} left out: {entry['why']}", file=sys.stderr, flush=True)

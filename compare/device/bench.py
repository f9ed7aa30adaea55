"""The bench: every stage, format and shape, by every contender that is named, in one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from dsa_crosscheck.compare.device.cell import Cell, measure
from dsa_crosscheck.compare.device.contenders import Contender
from dsa_crosscheck.compare.device.record import head
from dsa_crosscheck.compare.device.stages import STAGES, Stage
from dsa_crosscheck.compare.device.timing import copy_bytes_per_second
from dsa_crosscheck.compare.device.verdicts import failure


def run_bench(contenders: Sequence[Contender], commit: str, stages: Sequence[Stage] = STAGES) -> dict[str, Any]:
    """The record: head, ``peers`` (versions), ``copy_bytes_per_second``, ``cost`` entries and ``left_out``.

    Progress goes to standard error.
    """
    record: dict[str, Any] = {
        **head(commit),
        "peers": {one.name: one.version() for one in contenders if one.version() is not None},
        "copy_bytes_per_second": copy_bytes_per_second(),
        "cost": [],
        "left_out": [],
    }
    for stage in stages:
        for shape in stage.shapes:
            for format_name in stage.formats:
                cell = measure(stage, format_name, shape, contenders, record["copy_bytes_per_second"])
                record["cost"] += cell.entries
                record["left_out"] += cell.left_out
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

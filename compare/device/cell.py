"""One cell of the bench: a stage, a format and a shape, done by every contender in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.device.contenders import Contender
from dsa_crosscheck.compare.device.ratios import ratios_to
from dsa_crosscheck.compare.device.sizes import input_sets
from dsa_crosscheck.compare.device.stages import Stage
from dsa_crosscheck.compare.device.timing import Replay, in_turns
from dsa_crosscheck.compare.device.verdicts import OURS


@dataclass
class Cell:
    """``entries``: a record for each contender that was timed. ``left_out``: who was not, and why."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def measure(
    stage: Stage, format_name: str, shape: Any, contenders: Sequence[Contender], copy_rate: float, device: str = "cuda"
) -> Cell:
    """Check and time ``contenders`` on inputs that no cache holds, all of them on the same ones.

    Ratios are those of the first contender that could be had, its time over each other's. A contender that
    does not do this format is passed over; one that can't be had, for which the device is too small, or that
    fails is left out with the reason. Whatever our own raises is raised, if the device is large enough.
    """
    cell = Cell()
    first = stage.batch(format_name, shape, 0, device)
    sets = input_sets(first.read_bytes)
    batches = [first, *(stage.batch(format_name, shape, seed, device) for seed in range(1, sets))]
    judge = stage.judge(first)
    common = {"format": format_name, "stage": stage.name, **shape.entry()}
    replays: dict[str, Replay] = {}
    verdicts: dict[str, dict[str, object]] = {}
    for one in contenders:
        try:
            if format_name not in one.formats(stage.name):
                continue
            own = [replace(batch) for batch in batches]  # a contender may put its own result in place of ours
            calls = [one.plan(stage.name, batch) for batch in own]
            own[0].clear()
            calls[0]()
            verdict = judge(own[0])
            replays[one.name] = Replay(calls)
            verdicts[one.name] = verdict
        except Exception as error:  # a peer's library may fail in ways of its own; the record says how
            if one.name in OURS and not isinstance(error, torch.OutOfMemoryError):
                raise
            why = f"{type(error).__name__}: {error}".split("\n")[0]
            cell.left_out.append({"candidate": one.name, **common, "why": why})
    seconds = in_turns(replays)
    for name in replays:
        rates = _rates(first, seconds[name], copy_rate)
        cell.entries.append({"candidate": name, **common, **rates, "input_sets": sets, **verdicts[name]})
    for number, entry in enumerate(cell.entries):
        entry["ratio_to"] = ratios_to(entry, cell.entries) if number == 0 else {}
    return cell


def _rates(batch: Any, seconds: list[float], copy_rate: float) -> dict[str, Any]:
    median = float(np.median(seconds))
    rates: dict[str, Any] = {
        "seconds": median,
        "seconds_low": min(seconds),
        "seconds_high": max(seconds),
        "bytes": batch.bytes,
        "bytes_per_second": batch.bytes / median,
        "copy_fraction": batch.bytes / median / copy_rate,
    }
    if batch.flops:
        rates |= {"flops": batch.flops, "flops_per_second": batch.flops / median}
    return rates

"""Scoring from rest and under load: at its power limit a GPU lowers its clock, and who needs the clock slows down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.device.batches import ScoreShape, score_batch
from dsa_crosscheck.compare.device.contenders import Contender
from dsa_crosscheck.compare.device.record import output_of
from dsa_crosscheck.compare.device.sizes import input_sets
from dsa_crosscheck.compare.device.table import shape_of
from dsa_crosscheck.compare.device.timing import Replay
from dsa_crosscheck.compare.studies.text_table import text_table

CASES = (
    ("fp8", ScoreShape(256, 32768)),
    ("bf16", ScoreShape(256, 32768)),
    ("fp4", ScoreShape(256, 32768)),
    ("fp8", ScoreShape(64, 32768, next_n=2)),
)
PAUSE_SECONDS = 0.5
LOAD_SECONDS = 0.3
"""Of load before the timed part, and of the timed part."""
ASKED_AFTER = 0.5
"""Share of the timed part after which the GPU is asked: the answer takes about a tenth of a second."""
QUERY = ("uuid", "clocks.sm", "power.draw.instant", "power.limit")
COLUMNS = ["candidate", "format", "shape", "us from rest", "us under load", "MHz", "W", "limit W"]


def measure(contenders: Sequence[Contender]) -> dict[str, list[dict[str, Any]]]:
    """``power``: an entry for each case and contender that does its format; ``left_out``: who can't be had, and why.

    ``seconds`` is the least of three calls from rest, ``loaded_seconds`` after ``LOAD_SECONDS`` of its own load.
    ``ValueError`` where nvidia-smi does not tell what is asked, before anything is timed.
    """
    found: dict[str, list[dict[str, Any]]] = {"power": [], "left_out": []}
    _state()
    for format_name, shape in CASES:
        first = score_batch(format_name, shape, 0, "cuda")
        sets = input_sets(first.read_bytes)
        batches = [first, *(score_batch(format_name, shape, seed, "cuda") for seed in range(1, sets))]
        for one in contenders:
            if format_name not in one.formats("score"):
                continue
            what = {"candidate": one.name, "stage": "score", "format": format_name, **shape.entry()}
            try:
                # A contender may put its own result in place of ours.
                calls = [one.plan("score", replace(batch)) for batch in batches]
            except (ImportError, Unsupported) as error:
                found["left_out"].append(what | {"why": str(error)})
                continue
            found["power"].append(what | _entry(Replay(calls)))
            torch.cuda.empty_cache()
    return found


def _entry(replay: Replay) -> dict[str, float]:
    time.sleep(PAUSE_SECONDS)
    rested = min(replay.rested_seconds() for _ in range(3))
    replays = max(1, round(LOAD_SECONDS / rested / replay.calls))
    replay.loaded_seconds(replays)
    asked: dict[str, float] = {}

    def ask() -> None:
        time.sleep(ASKED_AFTER * LOAD_SECONDS)
        asked.update(_state())

    loaded = replay.loaded_seconds(replays, ask)
    return {"seconds": rested, "loaded_seconds": loaded, **asked}


def _state() -> dict[str, float]:
    answer = output_of("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
    return state_of(str(torch.cuda.get_device_properties().uuid), answer)


def state_of(uuid: str, answer: str) -> dict[str, float]:
    """Clock, power and its limit of the GPU ``uuid`` in an ``answer`` of nvidia-smi; of the only one if there is one.

    ``ValueError`` with the answer where it has no such line.
    """
    lines = [[cell.strip() for cell in line.split(",")] for line in answer.strip().splitlines()]
    own = lines if len(lines) == 1 else [line for line in lines if uuid in line[0]]
    try:
        _, clock, power, limit = own[0]
        return {"sm_clock_mhz": float(clock), "power_watts": float(power), "power_limit_watts": float(limit)}
    except (IndexError, ValueError):
        raise ValueError(f"nvidia-smi should tell {QUERY} of GPU {uuid}, got {answer!r}") from None


def render(record: dict[str, Any]) -> str:
    """A table of the entries, then who was left out."""
    state = ("sm_clock_mhz", "power_watts", "power_limit_watts")
    rows = [
        [e["candidate"], e["format"], shape_of(e)]
        + [f"{e[name] * 1e6:,.1f}" for name in ("seconds", "loaded_seconds")]
        + [f"{e[name]:,.0f}" for name in state]
        for e in record["power"]
    ]
    left_out = [f"{e['candidate']} {e['format']} {shape_of(e)} left out: {e['why']}" for e in record["left_out"]]
    return "\n".join([*text_table(COLUMNS, rows, 3), *left_out])

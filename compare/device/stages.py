"""What is timed: stages, with their formats and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsa_crosscheck.compare.device.batches import (
    ScoreShape,
    SelectShape,
    StoreShape,
    score_batch,
    select_batch,
    store_batch,
)
from dsa_crosscheck.compare.device.checks import score_judge, select_judge, store_judge
from dsa_crosscheck.compare.device.sizes import PRESET_OF

MOST_KEYS = 1 << 24
"""Of all requests together, so that every format fits beside the intermediates of the unfused path."""


@dataclass(frozen=True)
class Stage:
    """``batch(format, shape, seed, device)`` makes inputs, ``judge(batch)`` the check of a result."""

    name: str
    formats: tuple[str, ...]
    shapes: tuple[Any, ...]
    batch: Callable[[str, Any, int, str], Any]
    judge: Callable[[Any], Callable[[Any], dict[str, object]]]


STAGES = (
    Stage(
        "score",
        tuple(PRESET_OF),
        (
            *(ScoreShape(r, n) for r in (1, 64, 256) for n in (8192, 32768, 131072) if r * n <= MOST_KEYS),
            ScoreShape(64, 32768, next_n=2),
        ),
        score_batch,
        score_judge,
    ),
    Stage("store", tuple(PRESET_OF), (StoreShape(1 << 20),), store_batch, store_judge),
    Stage(
        "select",
        ("fp32",),
        tuple(SelectShape(rows, keys, k) for rows, keys in ((256, 32768), (8, 262144)) for k in (512, 2048)),
        select_batch,
        select_judge,
    ),
)

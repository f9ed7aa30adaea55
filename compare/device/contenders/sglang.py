"""SGLang's kernels as they are timed: launches alone, planned and checked before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsa_crosscheck.compare.candidates.sglang import PRESET_OF_FORMAT
from dsa_crosscheck.compare.candidates.sglang_launch import StoreArguments, select_launch, store_launch
from dsa_crosscheck.compare.candidates.sglang_plans import RATIO, decode_plan

STAGES = {"store": ("fp8", "fp4"), "select": ("fp32",)}
"""Formats by stage."""

FORMATS = {name.split("-")[0]: name for name in PRESET_OF_FORMAT}


def store(batch: Any) -> Callable[[], object]:
    """One launch of the fused store of decode rows into ``batch.cache``.

    Consecutive launches overlap as in serving: a launch begins when the one before ends its reads.
    ``ValueError`` for a ratio that the plans here are not for; ``Unsupported`` as the candidate.
    """
    if batch.compress_ratio != RATIO:
        raise ValueError(f"`store(batch.compress_ratio=...)` should be {RATIO}, got {batch.compress_ratio}")
    given = StoreArguments(batch.rows, batch.norm_weight, batch.norm_eps, batch.rope_table, batch.slots, batch.cache)
    plan = decode_plan(batch.seq_lens)
    return store_launch(given, plan, key_format=FORMATS[batch.format], page_size=batch.page_size, decode=True)


def select(batch: Any) -> Callable[[], object]:
    """One launch of top-k v2 into ``batch.selected``, as unordered logical indices.

    ``ValueError`` for rows that are not a multiple of 4 scores long, which the kernel does not take.
    """
    if batch.scores.shape[1] % 4:
        raise ValueError(f"`select(batch.scores=...)` should have a multiple of 4 columns, got {batch.scores.shape[1]}")
    return select_launch(batch.scores, batch.lengths, batch.selected)

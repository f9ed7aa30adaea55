"""One comparison a stage: identical inputs to both sides, one judgement of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.keys import judge_keys, run_keys
from dsa_crosscheck.compare.stages.pool import judge_pool, run_pool
from dsa_crosscheck.compare.stages.query import judge_query, run_query
from dsa_crosscheck.compare.stages.scores import judge_scores, run_scores
from dsa_crosscheck.compare.stages.selection import judge_select, run_select

Outputs = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Stage:
    """``run`` gives a candidate the reference's inputs of a stage and returns what it made;
    ``judge`` compares that with the reference of any setup, the original or one with other
    conventions."""

    run: Callable[[Any, Setup], Outputs]
    judge: Callable[[Outputs, Setup], list[StageResult]]


CHECKS: dict[str, Stage] = {
    "pool": Stage(run_pool, judge_pool),
    "store_keys": Stage(run_keys, judge_keys),
    "encode_query": Stage(run_query, judge_query),
    "score": Stage(run_scores, judge_scores),
    "select": Stage(run_select, judge_select),
}
"""Comparison of each candidate method, in the order of the data's path."""

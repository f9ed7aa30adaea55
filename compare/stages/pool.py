"""Stage ``pool``: raw projections to pooled keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.reference.bounds import pool_bound


def run_pool(candidate: Any, setup: Setup) -> tuple[np.ndarray, ...]:
    """The candidate's pooled keys of the inputs' raw stretch; empty when the inputs have none."""
    kv_score, bias, want = setup.inputs.kv_score, setup.inputs.position_bias, setup.trace.pooled_stretch
    if kv_score is None or bias is None or want is None:
        return ()
    (got,) = call(candidate, "pool", kv_score, bias)
    return (expect("pool", "pooled keys", got, want.shape, (np.float32, np.float64)),)


def judge_pool(outputs: tuple[np.ndarray, ...], setup: Setup) -> list[StageResult]:
    """Pooled keys against float64 and the bound of the softmax."""
    kv_score, bias, want = setup.inputs.kv_score, setup.inputs.position_bias, setup.trace.pooled_stretch
    if not outputs or kv_score is None or bias is None or want is None:
        return []
    bound = pool_bound(kv_score, bias, setup.model)
    return [judge_values("pool", outputs[0], want, bound, lambda at: f"group {at[0]} d{at[1]}")]

"""Stage ``pool``: raw projections to pooled keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.reference.bounds import pool_bound


def check_pool(candidate: Any, setup: Setup) -> list[StageResult]:
    """Pool the inputs' raw stretch on both sides; nothing when the inputs have none."""
    kv_score, bias = setup.inputs.kv_score, setup.inputs.position_bias
    want = setup.trace.pooled_stretch
    if kv_score is None or bias is None or want is None:
        return []
    (got,) = call(candidate, "pool", kv_score, bias)
    expect("pool", "pooled keys", got, want.shape, (np.float32, np.float64))
    bound = pool_bound(kv_score, bias, setup.model)
    return [judge_values("pool", got, want, bound, lambda at: f"group {at[0]} d{at[1]}")]

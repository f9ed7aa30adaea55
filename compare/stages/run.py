"""Method ``run``: a fused implementation, from raw inputs to a selection, judged by what it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.call import CandidateFault, expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.selection import SelectionOutcome, judge_selection
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.compare.verdict import Verdict

END_TO_END = "end to end"


def check_run(candidate: Any, setup: Setup, max_swaps: int) -> tuple[list[StageResult], SelectionOutcome]:
    """Call ``run(inputs)`` and judge each tensor it returns.

    ``selection`` is required; ``keys`` [keys, head_dim], ``query`` [rows, heads, head_dim] (both as
    the scorer uses them) and ``scores`` [rows, n] are judged where the candidate shows them. Scores
    and selection are bounded for codes that nobody saw.
    """
    shown = _call(candidate, setup)
    trace, lengths = setup.trace, setup.trace.lengths
    scores, bound = setup.unseen_scores
    results = []
    if "keys" in shown:
        got = expect("run", "keys", shown["keys"], trace.keys.rotated.shape, (np.float32, np.float64))
        place = "key {} d{}".format
        judged = judge_values("run: keys", got, trace.keys.rotated, setup.key_bound.rotated, lambda at: place(*at))
        results.append(judged)
    if "query" in shown:
        want = trace.query.rotated
        got = expect("run", "query", shown["query"], want.shape, (np.float32, np.float64))
        place = "row {} head {} d{}".format
        results.append(judge_values("run: query", got, want, setup.query_bound.rotated, lambda at: place(*at)))
    if "scores" in shown:
        width = scores.values.shape[1]
        got = shown["scores"][:, :width]
        expect("run", "scores", got, (lengths.size, width), (np.float32,))
        place, seen = "row {} key {}".format, visible(lengths, width)
        results.append(judge_values("run: scores", got, scores.values, bound, lambda at: place(*at), seen))
    got = expect("run", "selection", shown["selection"], (lengths.size, setup.inputs.geometry.topk), (np.int32, np.int64))
    return results, judge_selection(END_TO_END, got, setup, scores.values, bound, max_swaps)


def _call(candidate: Any, setup: Setup) -> dict[str, np.ndarray]:
    try:
        out = candidate.run(setup.inputs)
    except Exception as error:
        raise CandidateFault(Verdict.MALFORMED, f"run raised {type(error).__name__}: {error}") from error
    if not isinstance(out, dict) or not isinstance(out.get("selection"), torch.Tensor):
        raise CandidateFault(Verdict.MALFORMED, "run should return a dict with a torch tensor 'selection'")
    return {name: value.detach().cpu().numpy() for name, value in out.items() if isinstance(value, torch.Tensor)}

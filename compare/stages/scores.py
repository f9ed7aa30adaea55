"""Stage ``score``: the same cache bytes, codes and weights into both scorers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.values import judge_values


def run_scores(candidate: Any, setup: Setup) -> tuple[np.ndarray, ...]:
    """The candidate's scores of the reference's cache bytes, codes and weights."""
    return (score_call(candidate, setup, *setup.scorer_input),)


def judge_scores(outputs: tuple[np.ndarray, ...], setup: Setup) -> list[StageResult]:
    """Scores elementwise against float64 scores of the same bytes, under the accumulator model."""
    inputs, trace = setup.inputs, setup.trace
    (got,) = outputs
    scores, bound = setup.shared_scores

    def place(at: tuple[int, ...]) -> str:
        request = int(inputs.request_of_row[at[0]])
        page, offset = divmod(at[1], inputs.geometry.page_size)
        physical = inputs.block_table[request, page]
        return f"row {at[0]} key {at[1]} ({physical}:{offset})"

    seen = visible(trace.lengths, got.shape[1])
    return [judge_values("scores", got, scores.values, bound, place, seen, geometry=inputs.geometry)]


def score_call(candidate: Any, setup: Setup, cache: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Scores (float32 [rows, max_length]) of the candidate for given bytes."""
    inputs, lengths = setup.inputs, setup.trace.lengths
    (got,) = call(candidate, "score", codes, weights, cache, inputs.block_table, inputs.request_of_row, lengths)
    shape = (lengths.size, int(lengths.max(initial=0)))
    return expect("score", "scores", got, shape, (np.float32,))


def visible(lengths: np.ndarray, width: int) -> np.ndarray:
    """bool [rows, width]: columns a row may see."""
    return np.arange(width)[None, :] < lengths[:, None]

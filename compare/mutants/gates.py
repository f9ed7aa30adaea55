"""The acceptance rules that peers use, on the same run that the certificates judge.

Sources: a floor under the mean overlap of selected sets (FlashInfer's and vLLM's top-k tests);
``calc_diff`` below 1e-3 (DeepGEMM, aiter, vLLM); the sorted scores of the selected keys close to
1e-2 (flashinfer-bench's rule, with the wider of its peers' tolerances).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.candidates.protocol import FUSED, offers
from dsa_crosscheck.compare.noise import calc_diff, overlaps
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.stages.run import run_fused
from dsa_crosscheck.compare.stages.scores import score_call, visible
from dsa_crosscheck.compare.stages.selection import select_call

OVERLAP_FLOOR = 0.9
CALC_DIFF_LIMIT = 1e-3
SCORE_TOLERANCE = 1e-2


@dataclass(frozen=True)
class EndToEnd:
    """``selection`` int [rows, topk] and ``scores`` [rows, n] (None = not shown) that end a run."""

    selection: np.ndarray
    scores: np.ndarray | None


def end_to_end(candidate: Any, setup: Setup) -> EndToEnd:
    """The candidate's own stages chained, or its ``run``. ``CandidateFault`` where one breaks its contract."""
    if offers(candidate, FUSED):
        return EndToEnd(run_fused(candidate, setup)["selection"], None)
    _, cache = CHECKS["store_keys"].run(candidate, setup)
    codes, weights = CHECKS["encode_query"].run(candidate, setup)
    scores = score_call(candidate, setup, cache, codes, weights)
    return EndToEnd(select_call(candidate, setup, scores), scores)


def overlap_gate(got: EndToEnd, want: EndToEnd, lengths: np.ndarray) -> bool:
    """Mean over rows of the share of right keys is at least ``OVERLAP_FLOOR``."""
    shared = overlaps(got.selection, want.selection, lengths, want.selection.shape[1])
    return bool(shared.mean() >= OVERLAP_FLOOR)


def calc_diff_gate(got: EndToEnd, want: EndToEnd, lengths: np.ndarray) -> bool | None:
    """``calc_diff`` of all visible scores is below ``CALC_DIFF_LIMIT``; None when scores aren't shown."""
    if got.scores is None or want.scores is None:
        return None
    seen = visible(lengths, want.scores.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        return calc_diff(got.scores[seen], want.scores[seen]) < CALC_DIFF_LIMIT


def sorted_scores_gate(got: EndToEnd, want: EndToEnd, lengths: np.ndarray) -> bool:
    """The right scores of the selected keys, sorted, agree to ``SCORE_TOLERANCE`` absolute and relative.

    An index that a row may not see fails it.
    """
    assert want.scores is not None
    topk = want.selection.shape[1]
    for row, length in enumerate(lengths):
        due = min(int(length), topk)
        chosen = got.selection[row, :due]
        if ((chosen < 0) | (chosen >= length)).any():
            return False
        mine, theirs = (np.sort(want.scores[row, index]) for index in (chosen, want.selection[row, :due]))
        if not np.allclose(mine, theirs, rtol=SCORE_TOLERANCE, atol=SCORE_TOLERANCE, equal_nan=True):
            return False
    return True


CERTIFICATE = "certificate"

PEER_GATES: dict[str, Callable[[EndToEnd, EndToEnd, np.ndarray], bool | None]] = {
    "overlap": overlap_gate,
    "calc_diff": calc_diff_gate,
    "sorted scores": sorted_scores_gate,
}
"""Whether a run passes, by gate; None where the gate can't be applied."""

GATES = (CERTIFICATE, *PEER_GATES)

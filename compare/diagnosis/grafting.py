"""Each part of the chain swapped for the other side's, to see which part carries the fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.candidates.protocol import offers
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.diagnosis.explanation import Graft
from dsa_crosscheck.compare.diagnosis.subset import with_rows
from dsa_crosscheck.compare.noise import mean_and_worst, overlaps
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.scores import score_call, visible
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.reference.select import select

ROWS = 8
"""Rows that are scored, spread over the batch."""
OURS, THEIRS = "reference", "candidate"


def graft(candidate: Any, evidence: Evidence, setup: Setup) -> tuple[tuple[Graft, ...], str]:
    """Scores of each combination of key bytes, query codes and scorer, and what they say together.

    All are judged by the reference's scores with the freedom that unseen codes have, so that a
    legitimately different code is no fault. The selection is always the reference's. Empty without a
    separate store or query stage.
    """
    keys, query = evidence.has("store_keys"), evidence.has("encode_query")
    scorer = offers(candidate, "score")
    if not (keys or query or scorer):
        return (), ""
    rows = np.unique(np.linspace(0, setup.inputs.rows - 1, min(ROWS, setup.inputs.rows)).astype(int))
    if not rows.size:
        return (), ""
    part = Setup(with_rows(setup.inputs, rows), setup.conventions, setup.model)
    combinations = [
        (THEIRS, OURS, OURS) if keys else None,
        (OURS, THEIRS, OURS) if query else None,
        (THEIRS, THEIRS, OURS) if keys and query else None,
        (OURS, OURS, THEIRS) if scorer else None,
        (THEIRS, THEIRS, THEIRS) if keys and query and scorer else None,
    ]
    table = tuple(_graft(candidate, evidence, part, rows, chosen) for chosen in combinations if chosen)
    return table, _sentence(table)


def _graft(candidate: Any, evidence: Evidence, part: Setup, rows: np.ndarray, chosen: tuple[str, str, str]) -> Graft:
    key, query, scorer = chosen
    cache, codes, weights = part.scorer_input
    if key == THEIRS:
        cache = evidence.outputs["store_keys"][1]
    if query == THEIRS:
        codes, weights = (array[rows] for array in evidence.outputs["encode_query"])
    lengths, topk = part.trace.lengths, part.inputs.geometry.topk
    want, bound = part.unseen_scores
    try:
        with np.errstate(all="ignore"):  # a wrong candidate's bytes can be any number
            if scorer == THEIRS:
                got = score_call(candidate, part, cache, codes, weights)
            else:
                got = part.judge(cache, codes, weights)[0].values.astype(np.float32)
            seen = visible(lengths, got.shape[1])
            result = judge_values("scores", got, want.values, bound, str, seen, geometry=part.inputs.geometry)
    except CandidateFault as fault:
        return Graft(key, query, scorer, fault.verdict.value, 0.0, float("inf"))
    ranked = np.where(seen, got, -np.inf)
    chosen_keys = select(ranked, lengths, topk, part.conventions)
    overlap, _ = mean_and_worst(overlaps(chosen_keys, part.trace.selection, lengths, topk))
    return Graft(key, query, scorer, result.verdict.value, overlap, result.factor or 0.0)


def _sentence(table: tuple[Graft, ...]) -> str:
    """Which parts are wrong alone, and whether wrong parts agree with each other."""
    bad = {(g.key, g.query, g.scorer): g.verdict in ("VIOLATION", "SCALE_ONLY", "MALFORMED") for g in table}
    alone = {
        "the candidate's keys": bad.get((THEIRS, OURS, OURS), False),
        "the candidate's queries": bad.get((OURS, THEIRS, OURS), False),
        "the candidate's scorer": bad.get((OURS, OURS, THEIRS), False),
    }
    wrong = [part for part, is_bad in alone.items() if is_bad]
    both = bad.get((THEIRS, THEIRS, OURS), False)
    if not wrong:
        return "no part is wrong by itself at the level of scores"
    if alone["the candidate's keys"] and alone["the candidate's queries"] and not both:
        return (
            "the candidate's keys and queries agree with each other but neither with the reference's: "
            "one change to both operands"
        )
    if len(wrong) == 1:
        verb = "makes" if alone["the candidate's scorer"] else "make"
        return f"only {wrong[0]}, put among the reference's parts, {verb} the scores wrong"
    return f"{', '.join(wrong[:-1])} and {wrong[-1]} are each wrong by themselves"

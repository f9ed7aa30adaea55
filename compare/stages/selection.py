"""Stages ``select`` and end to end: which keys come out, and whether that is legitimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.contract import ContractCheck, check_contract
from dsa_crosscheck.compare.foreign_keys import foreign_keys
from dsa_crosscheck.compare.indistinct import indistinct
from dsa_crosscheck.compare.physical import Located
from dsa_crosscheck.compare.selection_certificate import SelectionCertificate, certify_selection
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.shortfall import shortfall
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.select import ranked, select

FILLER = np.float32(3e38)
"""What columns past a row's length hold when scores are offered: the winner, if anyone reads it."""


@dataclass(frozen=True)
class SelectionOutcome:
    """A selection's result line, its certificate, and the raw indices."""

    result: StageResult
    certificate: SelectionCertificate
    selection: np.ndarray


def run_select(candidate: Any, setup: Setup) -> tuple[np.ndarray, ...]:
    """The candidate's selection from the reference's scores, rounded to float32."""
    return (select_call(candidate, setup, setup.selector_input[0]),)


def judge_select(outputs: tuple[np.ndarray, ...], setup: Setup, max_swaps: int = 20) -> list[StageResult]:
    """Exact selection of those very scores, up to equal ones."""
    scores = setup.selector_input[0].astype(np.float64)
    return [judge_selection("selection", outputs[0], setup, scores, None, max_swaps).result]


def select_call(candidate: Any, setup: Setup, scores: np.ndarray) -> np.ndarray:
    """int32 [rows, topk] of the candidate for given scores."""
    lengths, topk = setup.trace.lengths, setup.inputs.geometry.topk
    offered = np.where(visible(lengths, scores.shape[1]), scores, FILLER).astype(np.float32)
    (got,) = call(candidate, "select", offered, lengths, topk)
    return expect("select", "indices", got, (lengths.size, topk), (np.int32, np.int64))


def judge_selection(
    stage: str,
    got: np.ndarray,
    setup: Setup,
    scores: np.ndarray,
    bound: np.ndarray | None,
    max_swaps: int,
    owner: np.ndarray | None = None,
) -> SelectionOutcome:
    """Contract first, then the certificate, then whether the rows could have shown a fault.

    ``owner``: of a selection that came as physical slots (``Located``). A ``bound`` means end to end,
    where inputs that cannot tell rows apart show nothing either.
    """
    c, lengths, topk = setup.conventions, setup.trace.lengths, setup.inputs.geometry.topk
    contract = check_contract(got, lengths, topk, c.topk_padding)
    wanted = select(scores, lengths, topk, c)
    due = np.minimum(lengths, topk)
    expected = [wanted[row, : due[row]] for row in range(lengths.size)]
    certificate = certify_selection(
        contract.chosen, expected, scores, bound, lengths, nan=c.topk_nan, max_swaps=max_swaps
    )
    verdict, note = certificate.verdict, ""
    if contract.faults:
        strangers = foreign_keys(Located(got, owner), lengths, setup.inputs, c.topk_padding)
        verdict, note = Verdict.MALFORMED, "; ".join((*contract.faults, *strangers))
    elif verdict.passed and bound is None and _misordered(contract.chosen, expected, scores, setup):
        verdict, note = Verdict.VIOLATION, f"the right keys, not in {c.topk_order} order"
    elif verdict.failed:
        note = shortfall(contract.chosen, expected, scores, lengths, c.topk_nan)
    else:
        note = vacuous(scores, lengths, topk) or (indistinct(setup) if bound is not None else "")
        verdict = Verdict.VACUOUS if note else verdict
    worst = max(certificate.swaps, key=lambda s: s.gap - s.bound, default=None)
    result = StageResult(
        stage,
        verdict,
        int(due.sum()),
        certificate.swap_count,
        worst.gap if worst else None,
        "gap",
        worst.bound if worst and bound is not None else None,
        float(certificate.factors.max(initial=0.0)) if bound is not None else None,
        f"row {worst.row} key {worst.missed}" if worst else "",
        note,
        _exchanged(contract, certificate, expected, scores.shape) if verdict.failed else None,
    )
    return SelectionOutcome(result, certificate, got)


def _exchanged(
    contract: ContractCheck, certificate: SelectionCertificate, expected: list[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray | None:
    """bool [rows, n]: keys that failing rows left out or returned wrongly; None when sets agree."""
    mask = np.zeros(shape, bool)
    for row, (got, want) in enumerate(zip(contract.chosen, expected, strict=True)):
        if contract.faults or certificate.verdicts[row].failed:
            mask[row, np.setxor1d(got, want)] = True
    return mask if mask.any() else None


def vacuous(scores: np.ndarray, lengths: np.ndarray, topk: int) -> str:
    """Why no wrong selection could have been seen, or an empty string."""
    if not lengths.size or (lengths <= topk).all():
        return f"k = {topk} selects every visible key of every row"
    deciding = [scores[row, :n] for row, n in enumerate(lengths) if n > topk]
    if all((row == row[0]).all() for row in deciding):
        return "all scores of every row are equal"
    return ""


def _misordered(chosen: list[np.ndarray], expected: list[np.ndarray], scores: np.ndarray, setup: Setup) -> bool:
    """Whether a declared order is broken; equal scores may stand in any order."""
    order = setup.conventions.topk_order
    if order == "any":
        return False
    if order == "index":
        return any((np.diff(row) < 0).any() for row in chosen)
    nan = setup.conventions.topk_nan
    pairs = enumerate(zip(chosen, expected, strict=True))
    # Ranks and not scores, since NaN equals nothing.
    return any((ranked(scores[row, got], nan) != ranked(scores[row, want], nan)).any() for row, (got, want) in pairs)

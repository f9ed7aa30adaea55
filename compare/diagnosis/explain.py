"""From a failed comparison to its reasons."""

from __future__ import annotations

from typing import Any

from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.compare.diagnosis.decode import decode
from dsa_crosscheck.compare.diagnosis.evidence import OPERANDS, Evidence
from dsa_crosscheck.compare.diagnosis.explanation import Cause, Explanation, Residual, Trial
from dsa_crosscheck.compare.diagnosis.facts import exact_facts
from dsa_crosscheck.compare.diagnosis.flips import search_flips
from dsa_crosscheck.compare.diagnosis.grafting import graft
from dsa_crosscheck.compare.diagnosis.grouping import find_groups
from dsa_crosscheck.compare.diagnosis.structural import search_faults
from dsa_crosscheck.compare.scale_only import UNKNOWN_FACTOR
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.stages.run import END_TO_END
from dsa_crosscheck.compare.verdict import Verdict

REPEATS = "what the output depends on beside its inputs"
"""Operand of a line that compares the candidate with itself."""

ADDRESSING = ("page_order", "lane_order_key", "key.nibbles")
"""Fields that move elements; decoded addresses say how."""


def explain(candidate: Any, setup: Setup, evidence: Evidence) -> Explanation | None:
    """Why ``evidence``, what ``candidate`` made under ``setup``, fails; None when nothing does.

    Every failing stage is searched for itself, since all received the reference's inputs: flips of
    its fields, then named faults where no flip explains it. A failing chain whose every stage
    passes has no cause of its own; grafts tell which part carries it.
    """
    failing = evidence.failing()
    if not failing:
        return None
    causes: list[Cause] = []
    trials: list[Trial] = []
    decoded: list[str] = []
    unexplained: list[str] = []
    exhausted = True
    for method in failing:
        if method not in (*CHECKS, FUSED):
            # A chain, a repeat or a guard: it follows from the stages, or has no convention of its own.
            if method == failing[0]:
                unexplained.append(method)
            continue
        found = search_flips(candidate, evidence, setup, method)
        here, tried, complete = list(found.causes), list(found.trials), found.exhausted
        here = here or _constant_ratios(evidence, method)
        if not here:
            named = search_faults(evidence, setup, method)
            here, tried, complete = list(named.causes), [*tried, *named.trials], complete and named.exhausted
        if not here or any(change[0] in ADDRESSING for cause in here for change in cause.change):
            decoded += decode(candidate, setup, method)
        if not here:
            unexplained.append(method)
        causes += here
        trials += tried
        exhausted = exhausted and complete
    failed = [result for result in evidence.results if result.verdict.failed]
    grafts, sentence = graft(candidate, evidence, setup) if _separable(failing) else ((), "")
    first = failed[0]
    method = evidence.method(first.stage)
    return Explanation(
        first_stage=first.stage,
        method=method,
        operand=OPERANDS.get(first.stage) or OPERANDS.get(method, REPEATS),
        extent=_extent(first),
        causes=tuple(causes),
        groups=tuple(group for result in failed for group in find_groups(result, setup)),
        facts=tuple(fact for result in failed for fact in exact_facts(result, evidence, setup)),
        grafts=grafts,
        graft_sentence=_shared_cause(causes) or sentence,
        decoded=tuple(decoded),
        trials=tuple(trials),
        unexplained=tuple(unexplained),
        exhausted=exhausted,
    )


def _extent(line: StageResult) -> str:
    """How far a line's errors reach, where nothing is left out that a group could exclude."""
    if line.elements == 0:
        return "nothing came back that could be compared"
    return "every element is wrong" if line.unexplained == line.elements else ""


def _constant_ratios(evidence: Evidence, method: str) -> list[Cause]:
    """The known factor that is all that is wrong with a method, line by line."""
    failed = [r for r in evidence.results if evidence.method(r.stage) == method and r.verdict.failed]
    own = [r for r in failed if r.verdict == Verdict.SCALE_ONLY]
    if not own or any(UNKNOWN_FACTOR in r.note for r in own) or any(r.unexplained > 1 for r in failed if r not in own):
        return []
    nothing = Residual(0, 0, None)
    return [Cause(method, "constant ratio", (), Residual.of([r]), nothing, f"{r.stage}: {r.note}") for r in own]


def _separable(failing: list[str]) -> bool:
    """Whether some part before the selector may be at fault, in a candidate that has parts."""
    parts = ("store_keys", "encode_query", "score")
    return FUSED not in failing and (any(part in failing for part in parts) or failing == [END_TO_END])


def _shared_cause(causes: list[Cause]) -> str:
    """The one change that explains both operands' faults, if one does."""
    by_stage = {
        stage: {cause.change for cause in causes if cause.stage == stage and cause.change}
        for stage in ("store_keys", "encode_query")
    }
    for change in sorted(by_stage["store_keys"] & by_stage["encode_query"]):
        fields = " and ".join(f"{path} {new}" for path, _, new in change)
        return f"keys and queries have the same change ({fields}): they agree with each other, not with the reference"
    return ""

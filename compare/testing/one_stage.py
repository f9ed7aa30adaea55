"""The report of one stage whose outputs are given, with everything that a whole comparison says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.census import tie_census
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.diagnosis.explain import explain
from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.noise import format_noise, mean_and_worst, overlaps
from dsa_crosscheck.compare.report import Report, Selection
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.selection import SelectionOutcome
from dsa_crosscheck.compare.testing.case import Case
from dsa_crosscheck.compare.testing.failure import case_facts
from dsa_crosscheck.compare.testing.settings import active
from dsa_crosscheck.compare.testing.subject import conventions_for, inputs_of, name_of
from dsa_crosscheck.compare.verdict import overall
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import MODEL_OF_ROUNDING, model
from dsa_crosscheck.reference.presets import PRESETS


@dataclass(frozen=True)
class Given:
    """A candidate of which only outputs are known: no method can be called again."""

    name: str
    conventions: Conventions


@dataclass(frozen=True)
class Judged:
    """Lines of a report, and what they were judged from: ``outputs`` by method, or what ``run`` would show."""

    results: list[StageResult]
    outputs: dict[str, tuple[np.ndarray, ...]]
    shown: dict[str, np.ndarray] | None = None
    outcome: SelectionOutcome | None = None


def setup_of(function: str, case: Case | Inputs, preset: str | Conventions | None, bound: str | None) -> Setup:
    """The comparison that an assertion asks for; ``ValueError`` names a preset or bound that is not one."""
    inputs = inputs_of(function, case)
    conventions = conventions_for(function, case, preset)
    rules = model(MODEL_OF_ROUNDING[conventions.score_rounding] if bound is None else bound)
    return Setup(inputs, conventions, rules)


def report_of(what: str, method: str, case: Case | Inputs, setup: Setup, judge: Callable[[], Judged]) -> Report:
    """The report on ``what`` was given; ``judge`` makes its lines or raises ``CandidateFault``."""
    try:
        judged = judge()
    except CandidateFault as fault:
        judged = Judged([StageResult(method, fault.verdict, 0, 0, note=str(fault))], {})
    verdict = overall(r.verdict for r in judged.results)
    explanation = None
    if verdict.failed:
        evidence = Evidence(judged.outputs, tuple(judged.results), judged.shown)
        explanation = explain(Given(what, setup.conventions), setup, evidence)
    return Report(
        candidate=what,
        conventions=next((n for n, row in PRESETS.items() if row.conventions == setup.conventions), "custom"),
        case=case_facts(name_of(case), setup.inputs),
        bound=setup.model.name,
        verdict=verdict,
        first_fault=next((r.stage for r in judged.results if r.verdict.failed), None),
        stages=tuple(judged.results),
        selection=None if judged.outcome is None else _selection(judged.outcome, setup),
        noise=format_noise(setup),
        error={},
        environment=environment(),
        replay=active().replay,
        census=tie_census(setup),
        explanation=explanation,
    )


def _selection(outcome: SelectionOutcome, setup: Setup) -> Selection:
    found = outcome.certificate
    shared = overlaps(outcome.selection, setup.trace.selection, setup.trace.lengths, setup.inputs.geometry.topk)
    result = outcome.result
    return Selection(*mean_and_worst(shared), result.verdict, result.factor, found.swaps, found.swap_count)

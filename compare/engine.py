"""The cross-check: every stage on identical inputs, then end to end, then one verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsa_crosscheck.compare.candidates.protocol import FUSED, STAGES, offers
from dsa_crosscheck.compare.census import tie_census
from dsa_crosscheck.compare.declared import declared_model
from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.noise import format_noise
from dsa_crosscheck.compare.physical import returned_kind
from dsa_crosscheck.compare.repeatability.budget import REPEATS
from dsa_crosscheck.compare.repeatability.check import check_repeatability
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.run import Run
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.verdict import overall
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.presets import preset as named_preset


def crosscheck(
    inputs: Inputs,
    candidate: Any,
    *,
    preset: str | Conventions | None = None,
    bound: str | None = None,
    max_mismatches: int = 20,
    repeat: int = REPEATS,
    explain: bool = True,
    case: dict[str, object] | None = None,
    replay: str = "",
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Compare a candidate with the reference, stage by stage and end to end.

    ``preset``: conventions to judge by, a name or a record; the candidate's own when None.
    ``repeat``: how often scores and selections are made again, as far as a few seconds allow; 0 leaves
    out everything that needs a result twice (poison, guard bands, other batches).
    ``bound``: an accumulator model's name; by default the one that the candidate declares, else the one
    that the conventions' score rounding implies. ``explain``: look for the reasons of a failure. ``case``
    and ``replay`` are shown in the report; ``progress`` is told each stage.

    Both sides get the same pooled keys to store, then the same cache bytes to score, then the same
    scores to select from. End to end, the candidate's own stages are chained and its selection is
    judged by float64 scores of its own bytes. A candidate that raises or returns something
    malformed fails that stage; one that declares a cache which disagrees with the inputs' is refused
    and not run. Raises ``ValueError`` for an unknown preset, bound or declared model, a candidate that offers no
    stage or returns an unknown kind of index, or a negative ``max_mismatches`` or ``repeat``.
    """
    if repeat < 0:
        raise ValueError(f"`crosscheck(repeat=...)` should not be negative, got {repeat}")
    if max_mismatches < 0:
        raise ValueError(f"`crosscheck(max_mismatches=...)` should not be negative, got {max_mismatches}")
    if not any(offers(candidate, method) for method in (*STAGES, FUSED)):
        raise ValueError(
            f"`crosscheck(candidate=...)` should have at least one of {(*STAGES, FUSED)}, got {candidate!r}"
        )
    returned_kind(candidate)
    conventions = _conventions(candidate, preset)
    setup = Setup(inputs, conventions, model(bound) if bound else declared_model(candidate, conventions))
    return crosscheck_setup(
        setup,
        candidate,
        judge_as_implied=not bound,
        max_mismatches=max_mismatches,
        repeat=repeat,
        explain=explain,
        case=case,
        replay=replay,
        progress=progress,
    )


def crosscheck_setup(
    setup: Setup,
    candidate: Any,
    *,
    judge_as_implied: bool = True,
    max_mismatches: int = 20,
    repeat: int = REPEATS,
    explain: bool = True,
    case: dict[str, object] | None = None,
    replay: str = "",
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """``crosscheck`` with a setup that may serve several candidates, so that the reference runs once for all.

    ``judge_as_implied``: note how scores stand under the conventions' own model, where ``setup`` has another.
    """
    run = Run(candidate, setup, max_mismatches, progress)
    selection = None
    if not run.refused():
        run.stages()
        if judge_as_implied:
            run.judge_as_implied()
        selection = run.end_to_end()
        if repeat:
            run.results += check_repeatability(candidate, run.setup, run.outputs, repeat, progress)
    progress("noise")
    verdict = overall(r.verdict for r in run.results)
    noise = format_noise(run.setup)
    explanation = run.explanation() if explain and verdict.failed else None
    return Report(
        candidate=candidate.name,
        conventions=_name_of(setup.conventions),
        case=case or {},
        bound=setup.model.name,
        verdict=verdict,
        first_fault=next((r.stage for r in run.results if r.verdict.failed), None),
        stages=tuple(run.results),
        selection=selection,
        noise=noise,
        error=run.error(),
        environment=environment(),
        not_offered=tuple(stage for stage in STAGES if stage not in run.offered),
        replay=replay,
        notes=tuple(run.notes),
        census=tie_census(run.setup),
        explanation=explanation,
    )


def _conventions(candidate: Any, choice: str | Conventions | None) -> Conventions:
    if choice is None:
        if not isinstance(candidate.conventions, Conventions):
            raise ValueError(f"`crosscheck(preset=...)` is needed: {candidate.name!r} declares no Conventions")
        return candidate.conventions
    return named_preset(choice).conventions if isinstance(choice, str) else choice


def _name_of(conventions: Conventions) -> str:
    return next((name for name, row in PRESETS.items() if row.conventions == conventions), "custom")

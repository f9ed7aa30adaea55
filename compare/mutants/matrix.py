"""Every mutant of a preset through every gate: what is killed, what survives, and where it is pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.declared import declared_model
from dsa_crosscheck.compare.diagnosis.evidence import LINES
from dsa_crosscheck.compare.engine import crosscheck_setup
from dsa_crosscheck.compare.mutants.cases import DEFAULT, NAN_SCORES, mutant_inputs, nan_scores
from dsa_crosscheck.compare.mutants.equivalent import equivalence
from dsa_crosscheck.compare.mutants.gates import CERTIFICATE, PEER_GATES, EndToEnd, end_to_end
from dsa_crosscheck.compare.mutants.mutant import Mutant, fault_mutants, flip_mutants
from dsa_crosscheck.compare.repeatability.budget import REPEATS
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.stages.run import END_TO_END
from dsa_crosscheck.compare.verdict import Verdict, overall
from dsa_crosscheck.reference.models import AccumulatorModel
from dsa_crosscheck.reference.presets import Preset
from dsa_crosscheck.reference.presets import preset as named_preset
from dsa_crosscheck.reference.select import select

REPEAT_LINES = {"repeat: scores": "score", "repeat: set": "select", "repeat: order": "select", END_TO_END: FUSED}


@dataclass(frozen=True)
class Outcome:
    """One row of the matrix.

    ``killed``: by gate, None where a gate can't be applied. ``verdict`` of the certificates, and the
    candidate method that they pin the fault to (empty when they find none). ``equivalent``: why it
    is no fault, empty when it is one.
    """

    mutant: str
    stage: str
    case: str
    killed: dict[str, bool | None]
    verdict: str
    pinned: str
    equivalent: str

    @property
    def problem(self) -> str:
        """What is wrong with the checks, if anything."""
        dead = self.killed[CERTIFICATE]
        if self.equivalent:
            return f"{self.mutant} is killed, but listed as equivalent: {self.equivalent}" if dead else ""
        if not dead:
            return f"{self.mutant} survives the certificates ({self.verdict}) on {self.case}"
        if self.pinned != self.stage:
            return f"{self.mutant} is pinned to {self.pinned}, not {self.stage}"
        return ""


@dataclass(frozen=True)
class Matrix:
    """All outcomes of a preset, and the cases on which the right candidate itself failed, with its verdict."""

    preset: str
    candidate: str
    outcomes: tuple[Outcome, ...]
    false_alarms: tuple[str, ...] = field(default=())

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences; empty when the checks hold."""
        alarms = tuple(f"the right candidate fails on {case}" for case in self.false_alarms)
        return alarms + tuple(o.problem for o in self.outcomes if o.problem)

    def score(self, gate: str) -> tuple[int, int]:
        """Faults that a gate kills, and faults that it can be applied to; equivalent mutants left out."""
        faults = [o.killed[gate] for o in self.outcomes if not o.equivalent and o.killed[gate] is not None]
        return sum(bool(dead) for dead in faults), len(faults)

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"candidate": self.candidate, "outcomes": [asdict(o) for o in self.outcomes]}


def run_matrix(
    name: str,
    make_right: Callable[[Any], Any] = ReferenceCandidate,
    only: str | None = None,
    progress: Callable[[str], None] = lambda mutant: None,
) -> Matrix:
    """Judge every mutant of preset ``name``, or those whose name contains ``only``.

    ``make_right(conventions)`` makes the candidate that structural faults are put into; flips of
    conventions are always the reference's, and are left out when it is another. ``ValueError`` for
    an unknown preset or when no mutant is left.
    """
    preset = named_preset(name)
    right = make_right(preset.conventions)
    mutants = [m for m in _mutants(preset, right) if only is None or only in m.name]
    if not mutants:
        raise ValueError(f"`run_matrix(only=...)` should be part of a mutant's name, got {only!r}")
    rules = declared_model(right, preset.conventions)
    setups = {case: _setup(case, preset, rules) for case in dict.fromkeys(m.case for m in mutants)}
    outcomes = []
    # Wrong numbers overflow where right ones do not.
    with np.errstate(all="ignore"):
        for mutant in mutants:
            progress(mutant.name)
            outcomes.append(_outcome(mutant, right, setups[mutant.case], preset))
    judged = {case: _judge(right, setup, 0) for case, setup in setups.items()}
    alarms = [f"{case} ({verdict} at {stage})" for case, (verdict, stage) in judged.items() if verdict.failed]
    return Matrix(name, right.name, tuple(outcomes), tuple(alarms))


def _mutants(preset: Preset, right: Any) -> Iterator[Mutant]:
    if isinstance(right, ReferenceCandidate):
        yield from flip_mutants(preset.conventions)
    yield from fault_mutants()


@dataclass(frozen=True)
class _GivenScores(Setup):
    """A setup whose selectors get these scores; nothing but the selection is looked at."""

    scores: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @property
    def selector_input(self) -> tuple[np.ndarray, np.ndarray]:
        return self.scores, self.trace.lengths


def _setup(case: str, preset: Preset, rules: AccumulatorModel) -> Setup:
    if case != NAN_SCORES:
        return Setup(mutant_inputs(case, preset.geometry), preset.conventions, rules)
    plain = _setup(DEFAULT, preset, rules)
    return _GivenScores(
        plain.inputs, plain.conventions, rules, scores=nan_scores(plain.trace.scores.values, plain.trace.lengths)
    )


def _outcome(mutant: Mutant, right: Any, setup: Setup, preset: Preset) -> Outcome:
    verdict, pinned = _judge(mutant.make(right, setup.inputs), setup, REPEATS if mutant.needs_repeat else 0)
    dead = verdict.failed or verdict is Verdict.REFUSED
    # A run starts from pooled keys, so peers' end-to-end rules have no say about pooling.
    peers = dict.fromkeys(PEER_GATES) if mutant.stage == "pool" else _peers(mutant.make(right, setup.inputs), setup)
    killed = {CERTIFICATE: dead} | {gate: None if passed is None else not passed for gate, passed in peers.items()}
    reason = equivalence(mutant, preset)
    return Outcome(mutant.name, mutant.stage, mutant.case, killed, verdict.value, pinned, reason)


def _judge(candidate: Any, setup: Setup, repeat: int) -> tuple[Verdict, str]:
    """The certificates' verdict, and the method of the first line that fails or refuses."""
    if isinstance(setup, _GivenScores):
        lines = CHECKS["select"].judge(CHECKS["select"].run(candidate, setup), setup)
        verdict = overall(line.verdict for line in lines)
    else:
        report = crosscheck_setup(setup, candidate, repeat=repeat, explain=False)
        lines, verdict = list(report.stages), report.verdict
    return verdict, next((_method(line) for line in lines if line.verdict.failed or _refused(line)), "")


def _refused(line: StageResult) -> bool:
    return line.verdict is Verdict.REFUSED


def _method(line: StageResult) -> str:
    return (LINES | REPEAT_LINES).get(line.stage, line.stage)


def _peers(candidate: Any, setup: Setup) -> dict[str, bool | None]:
    """Whether each peer gate passes; none does when the candidate breaks a stage's contract."""
    lengths = setup.trace.lengths
    try:
        if isinstance(setup, _GivenScores):
            (selection,) = CHECKS["select"].run(candidate, setup)
            wanted = select(setup.scores, lengths, setup.inputs.geometry.topk, setup.conventions)
            got, want = EndToEnd(selection, None), EndToEnd(wanted, setup.scores)
        else:
            got = end_to_end(candidate, setup)
            want = EndToEnd(setup.trace.selection, setup.trace.scores.values)
    except CandidateFault:
        return dict.fromkeys(PEER_GATES, False)
    return {name: gate(got, want, lengths) for name, gate in PEER_GATES.items()}

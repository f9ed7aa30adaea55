"""Which field of ``Conventions``, set otherwise, makes a stage's mismatch vanish."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, Unsupported
from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.compare.diagnosis.evidence import Evidence, alternate
from dsa_crosscheck.compare.diagnosis.explanation import EXPLAINS, Cause, Residual, Trial
from dsa_crosscheck.compare.diagnosis.fields import SHAPES, stage_flips
from dsa_crosscheck.compare.diagnosis.meaning import clause, shown
from dsa_crosscheck.compare.diagnosis.subset import few_inputs, reduced
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.stages.selection import judge_selection
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.conventions import Conventions, get_field
from dsa_crosscheck.reference.exact import round_bf16

PAIRS = 400
"""Most pairs of flips that are tried for a stage, the most promising first."""
FUSED_KEYS = 1 << 17
"""Most keys, over all pairs, that a fused candidate's pairs may cost: each needs the whole key path."""

_VERDICTS = list(Verdict)
_DOES_NOT_FIT = "bytes do not fit"


@dataclass(frozen=True)
class FlipSearch:
    """Causes, most specific first; everything tried; whether pairs were left untried."""

    causes: tuple[Cause, ...]
    trials: tuple[Trial, ...]
    exhausted: bool


@dataclass(frozen=True)
class _Flip:
    paths: tuple[str, ...]
    values: tuple[object, ...]
    conventions: Conventions

    @property
    def name(self) -> str:
        return ", ".join(f"{p} = {shown(v)}" for p, v in zip(self.paths, self.values, strict=True))


def search_flips(candidate: Any, evidence: Evidence, setup: Setup, method: str) -> FlipSearch:
    """Flip each field that acts on ``method``, then pairs of them if no single one explains it.

    The same outputs are judged under the flipped conventions, first on a part and, where that
    passes, on the whole. A flip under which the bytes have another size cannot be judged so: the
    candidate is run on what the flip says it expects. A cause is a flip after which nothing is
    wrong; equivalent ones are ranked by how little still differs.
    """
    search = _Search(candidate, evidence, setup, method)
    singles = [_Flip((path,), (value,), c) for path, value, c in stage_flips(setup.conventions, method)]
    found = [cause for flip in singles if (cause := search.attempt(flip))]
    pairs_left = False
    if not found and evidence.has(method):
        keys = search.part[1].inputs.keys
        limit = min(PAIRS, FUSED_KEYS // max(1, keys)) if method == FUSED else PAIRS
        pairs = search.promising_pairs(singles)
        pairs_left = len(pairs) > limit
        found = [cause for flip in pairs[:limit] if (cause := search.attempt(flip))]
    ranked = sorted(found, key=lambda entry: entry[0])
    return FlipSearch(tuple(cause for _, cause in ranked), tuple(search.trials), not pairs_left)


class _Search:
    def __init__(self, candidate: Any, evidence: Evidence, setup: Setup, method: str) -> None:
        self.candidate, self.evidence, self.setup, self.method = candidate, evidence, setup, method
        self.part = reduced(evidence, setup, method)
        lines = [r for r in evidence.results if evidence.method(r.stage) == method]
        self.before = Residual.of(lines)
        self.trials: list[Trial] = []
        self.residuals: dict[tuple[str, str], Residual] = {}

    def attempt(self, flip: _Flip) -> tuple[tuple[int, int, int], Cause] | None:
        """The cause with its rank if the flip explains everything."""
        rerun = False
        results = self._judged(*self.part, flip)
        if results is None:
            rerun = True
            results = self._rerun(flip)
        elif _vanished(results) and self.part[1] is not self.setup:
            results = self._judged(self.evidence, self.setup, flip)
        if results is None:
            self._note(flip, _DOES_NOT_FIT, None)
            return None
        after = Residual.of(results)
        if not rerun and len(flip.paths) == 1:
            self.residuals[flip.paths[0], shown(flip.values[0])] = after
        if not _vanished(results):
            self._note(flip, "does not", after)
            return None
        self._note(flip, EXPLAINS, after)
        worst = max(_VERDICTS.index(r.verdict) for r in results)
        # "any" promises less than every other value, so that it explains more than it should.
        rank = (int("any" in flip.values), after.differing, worst)
        return rank, self._cause(flip, after, rerun)

    def promising_pairs(self, singles: list[_Flip]) -> list[_Flip]:
        """Pairs of different fields, those whose members leave least unexplained first."""
        judged = [(self.residuals.get((f.paths[0], shown(f.values[0]))), f) for f in singles]
        known = sorted(((r.unexplained, place, f) for place, (r, f) in enumerate(judged) if r), key=lambda e: e[:2])
        pairs: list[tuple[int, int, _Flip]] = []
        for (first, _, a), (second, _, b) in combinations(known, 2):
            if a.paths == b.paths:
                continue
            try:
                both = a.conventions.with_field(b.paths[0], b.values[0])
            except ValueError:
                continue  # the two values exclude each other
            pairs.append((first + second, len(pairs), _Flip(a.paths + b.paths, a.values + b.values, both)))
        return [flip for *_, flip in sorted(pairs, key=lambda entry: entry[:2])]

    def _judged(self, evidence: Evidence, setup: Setup, flip: _Flip) -> list[StageResult] | None:
        if not evidence.has(self.method):
            return None
        other = alternate(setup, flip.conventions)
        try:
            with np.errstate(all="ignore"):  # bytes read in the wrong format hold any number
                results = evidence.judge(self.method, other)
        except (ValueError, CandidateFault):
            return None
        rounding = flip.conventions.score_rounding
        if rounding == setup.conventions.score_rounding:
            return results
        return results if _stored_as(evidence, self.method, other, rounding) else _unproven(results)

    def _rerun(self, flip: _Flip) -> list[StageResult] | None:
        """The candidate on what it would receive under the flip; None when it can't be that."""
        if self.method not in SHAPES or flip.paths[0] not in SHAPES[self.method]:
            return None
        other = Setup(few_inputs(self.setup.inputs, self.method), flip.conventions, self.setup.model)
        try:
            with np.errstate(all="ignore"):
                return CHECKS[self.method].judge(CHECKS[self.method].run(self.candidate, other), other)
        except (ValueError, CandidateFault, Unsupported):
            return None

    def _cause(self, flip: _Flip, after: Residual, rerun: bool) -> Cause:
        old = [get_field(self.setup.conventions, path) for path in flip.paths]
        change = tuple((p, shown(o), shown(v)) for p, o, v in zip(flip.paths, old, flip.values, strict=True))
        condition = " and ".join(f"{p} is {new} instead of {was}" for p, was, new in change)
        lead = "works on input for which" if rerun else "matches if"
        meaning = "; ".join(clause(path) for path in flip.paths)
        sentence = f"{lead} {condition}: {meaning} ({self.before} before, {after} after)"
        return Cause(self.method, " + ".join(flip.paths), change, self.before, after, sentence)

    def _note(self, flip: _Flip, outcome: str, residual: Residual | None) -> None:
        self.trials.append(Trial(self.method, flip.name, outcome, residual))


def _vanished(results: list[StageResult]) -> bool:
    """Nothing is wrong any more, and something was looked at."""
    return bool(results) and all(r.verdict.passed or r.verdict == Verdict.VACUOUS for r in results)


def _unproven(results: list[StageResult]) -> list[StageResult]:
    """A wider bound alone is no evidence of a narrower type: the line still counts as wrong."""
    return [StageResult(r.stage, Verdict.VIOLATION, r.elements, r.differing, factor=r.factor) for r in results]


def _stored_as(evidence: Evidence, method: str, setup: Setup, rounding: str) -> bool:
    """Whether the scores are numbers of the type that the rounding stores.

    A fused candidate that shows no scores must select exactly what the rounded scores select.
    """
    if method == FUSED:
        assert evidence.shown is not None
        scores = evidence.shown.get("scores")
        if scores is None:
            exact = setup.trace.scores.values
            outcome = judge_selection("", evidence.shown["selection"], setup, exact, None, 0)
            return not outcome.result.verdict.failed
    else:
        (scores,) = evidence.outputs[method]
    seen = scores[np.isfinite(scores)].astype(np.float64)
    if rounding == "none":
        return True
    if rounding == "fp16":
        with np.errstate(over="ignore"):
            return bool((seen == seen.astype(np.float16)).all())
    return bool((seen == round_bf16(seen)).all())

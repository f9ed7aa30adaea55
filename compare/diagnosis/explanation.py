"""What a diagnosis found, as plain records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from dsa_crosscheck.compare.stage_result import StageResult


@dataclass(frozen=True)
class Residual:
    """What is left of a mismatch: elements that nothing admissible explains, elements that differ at
    all, and the largest deviation / bound (None where equality is demanded)."""

    unexplained: int
    differing: int
    factor: float | None

    @classmethod
    def of(cls, results: list[StageResult]) -> Residual:
        """Of all lines of a stage together."""
        failed = [r for r in results if r.verdict.failed]
        factors = [r.factor for r in results if r.factor is not None]
        return cls(sum(r.unexplained for r in failed), sum(r.differing for r in results), max(factors, default=None))

    def __str__(self) -> str:
        text = f"{self.unexplained:,} unexplained"
        # What is wrong may have no bound to be compared with: then the factor is that of something right.
        if self.factor is None or not isfinite(self.factor) or (self.unexplained and self.factor <= 1):
            return text
        return f"{text}, worst {self.factor:.3g} times its bound"


@dataclass(frozen=True)
class Cause:
    """Something that makes a stage's mismatch vanish.

    ``stage``: the candidate method. ``name``: the field or fault. ``change``: (field, from, to) of each
    flip, empty for a structural fault.
    """

    stage: str
    name: str
    change: tuple[tuple[str, str, str], ...]
    residual_before: Residual
    residual_after: Residual
    sentence: str


EXPLAINS = "explains"
"""Outcome of a trial that is a cause."""


@dataclass(frozen=True)
class Trial:
    """One hypothesis that was tried: ``outcome`` is ``EXPLAINS``, ``does not``, or why it can't be."""

    stage: str
    name: str
    outcome: str
    residual: Residual | None


@dataclass(frozen=True)
class Group:
    """Where all errors of a line lie. ``share``: part of the line's units that lie there; ``chance``
    that scattered errors would."""

    line: str
    sentence: str
    share: float
    chance: float


@dataclass(frozen=True)
class Graft:
    """A chain with some parts taken from the candidate, and what its scores are worth."""

    key: str
    query: str
    scorer: str
    verdict: str
    overlap: float
    factor: float


@dataclass(frozen=True)
class Explanation:
    """Why a comparison failed.

    ``first_stage``: the first failing line; ``method``: the candidate method behind it; ``operand``:
    what it concerns; ``extent``: how far its errors reach where that is no matter of groups, else
    empty. ``causes``: everything that explains a failing stage, those of the first stage first and the
    most specific first within one; ``facts``: exact statements about the wrong elements.
    ``unexplained``: failing methods without a cause. ``exhausted``: every hypothesis within reach was
    tried; False when a work limit stopped the search.
    """

    first_stage: str
    method: str
    operand: str
    extent: str
    causes: tuple[Cause, ...]
    groups: tuple[Group, ...]
    facts: tuple[str, ...]
    grafts: tuple[Graft, ...]
    graft_sentence: str
    decoded: tuple[str, ...]
    trials: tuple[Trial, ...]
    unexplained: tuple[str, ...]
    exhausted: bool

    @property
    def cause(self) -> str:
        """The cause of the first fault in a sentence, or ``unexplained``."""
        return next((cause.sentence for cause in self.causes if cause.stage == self.method), "unexplained")

    @property
    def where(self) -> str:
        """Where all errors of the first failing line lie, or that they are everywhere or in no one group."""
        groups = [group.sentence for group in self.groups if group.line == self.first_stage]
        return "; ".join(groups) or self.extent or "no page, request, row, parity or position holds all errors"

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"cause": self.cause, "where": self.where}

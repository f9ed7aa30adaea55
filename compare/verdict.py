"""The nine verdicts, what they mean for a caller, and how several become one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What a comparison found; declared from best to worst within each outcome."""

    IDENTICAL = "IDENTICAL"
    TIE = "TIE"
    WITHIN_BOUND = "WITHIN_BOUND"
    VACUOUS = "VACUOUS"
    UNDECIDED = "UNDECIDED"
    REFUSED = "REFUSED"
    SCALE_ONLY = "SCALE_ONLY"
    VIOLATION = "VIOLATION"
    MALFORMED = "MALFORMED"

    @property
    def passed(self) -> bool:
        """The difference, if any, is legitimate."""
        return self in (Verdict.IDENTICAL, Verdict.TIE, Verdict.WITHIN_BOUND)

    @property
    def failed(self) -> bool:
        """The candidate is wrong."""
        return self in (Verdict.SCALE_ONLY, Verdict.VIOLATION, Verdict.MALFORMED)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 nothing decided (2 is kept for usage and environment errors)."""
        return 0 if self.passed else 1 if self.failed else 3


MEANING: dict[Verdict, str] = {
    Verdict.IDENTICAL: "the same result, bit for bit or key for key",
    Verdict.TIE: "different keys of exactly equal score",
    Verdict.WITHIN_BOUND: "different, and the declared arithmetic explains it",
    Verdict.VACUOUS: "the inputs could not have shown a fault",
    Verdict.UNDECIDED: "no stage was compared",
    Verdict.REFUSED: "the two sides cannot be compared, or a result does not repeat",
    Verdict.SCALE_ONLY: "every score is off by one constant factor",
    Verdict.VIOLATION: "different by more than any admissible arithmetic",
    Verdict.MALFORMED: "the output breaks its contract",
}


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The first failure; else the worst of the rest; ``UNDECIDED`` when there are none."""
    found = list(verdicts)
    for verdict in found:
        if verdict.failed:
            return verdict
    order = list(Verdict)
    return max(found, key=order.index, default=Verdict.UNDECIDED)

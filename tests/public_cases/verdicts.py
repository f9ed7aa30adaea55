"""What a test asks of a comparison: a right candidate passes, a faulty one fails where and as it should."""

from __future__ import annotations

import re
from typing import Any

from candidates import Altered

from dsa_crosscheck.compare import Report, Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.text import explanation_text
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs


def changed(conventions: Conventions, **changes: Any) -> Any:
    """The reference as a candidate with methods replaced: each is called as ``change(right, *arguments)``."""
    return Altered(ReferenceCandidate(conventions), **changes)  # type: ignore[arg-type]


def under(path: str, value: object, method: str) -> Any:
    """A change: the method under conventions that differ in one field."""

    def change(right: ReferenceCandidate, *args: Any) -> Any:
        return getattr(ReferenceCandidate(right.conventions.with_field(path, value)), method)(*args)

    return change


def judged(
    inputs: Inputs, candidate: Any, conventions: Conventions, *, explain: bool = True, repeat: int = 0
) -> Report:
    """One comparison under ``conventions``."""
    return crosscheck(inputs, candidate, preset=conventions, explain=explain, repeat=repeat)


def passes(inputs: Inputs, conventions: Conventions, candidate: Any = None, *, repeat: int = 0) -> None:
    """The right candidate passes on the same inputs, so that what fails is the fault."""
    right = candidate or ReferenceCandidate(conventions)
    report = judged(inputs, right, conventions, explain=False, repeat=repeat)
    assert report.verdict.passed, str(report)


def fails(report: Report, verdict: Verdict, stage: str, *sentences: str) -> None:
    """The report has this verdict, blames this line, and says each of ``sentences`` (patterns)."""
    text = said(report)
    assert report.verdict is verdict, text
    assert report.first_fault == stage, text
    for sentence in sentences:
        assert re.search(sentence, text), f"nothing like {sentence!r} in:\n{text}"


def said(report: Report) -> str:
    """Both renderings without folds, and without the list of what was tried and does not explain."""
    return " ".join(f"{report} {explanation_text(report).partition('tried (')[0]}".split())


def line(report: Report, name: str) -> Any:
    """The report's line of that name."""
    return next(result for result in report.stages if result.stage == name)

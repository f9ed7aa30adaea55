"""What a test asks of a comparison: a right candidate passes, a faulty one fails where and as it should."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import torch

from dsa_crosscheck.compare import Report, Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.text import explanation_text
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs

torch.set_num_threads(1)  # tests run side by side


class Changed:
    """The reference as a candidate, with methods replaced.

    Each keyword is a method: called as ``change(right, *arguments)``, or taken away where it is None.
    """

    name = "changed"

    def __init__(self, conventions: Conventions, **changes: Any) -> None:
        self.conventions = conventions
        self._right = ReferenceCandidate(conventions)
        self._changes = changes

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or (method in self._changes and self._changes[method] is None):
            raise AttributeError(method)
        change = self._changes.get(method)
        return partial(change, self._right) if change else getattr(self._right, method)


def under(path: str, value: object, method: str) -> Any:
    """A change: the method under conventions that differ in one field."""

    def change(right: ReferenceCandidate, *args: Any) -> Any:
        return getattr(ReferenceCandidate(right.conventions.with_field(path, value)), method)(*args)

    return change


def judged(inputs: Inputs, candidate: Any, conventions: Conventions, *, explain: bool = True, repeat: int = 0) -> Report:
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

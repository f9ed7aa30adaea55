"""One comparison to be made, here or in another process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs


@dataclass(frozen=True)
class Comparison:
    """``candidate``: an object, a class or function that makes one, or a name.

    ``offered``: the conventions that a class, function or name is called with; ``preset``: those to
    judge by, the candidate's own when None. The others are arguments of ``crosscheck``.
    """

    candidate: Any
    inputs: Inputs
    offered: Conventions | None
    preset: Conventions | None
    bound: str | None
    repeat: int
    case: dict[str, object]
    replay: str

    @property
    def label(self) -> str:
        """What to call the candidate before there is one."""
        if isinstance(self.candidate, str):
            return self.candidate
        return str(getattr(self.candidate, "name", None) or getattr(self.candidate, "__name__", repr(self.candidate)))

    def run(self, progress: Callable[[str], None]) -> Report:
        """The report; raises what making the candidate or ``crosscheck`` raises."""
        return crosscheck(
            self.inputs,
            _made(self.candidate, self.offered),
            preset=self.preset,
            bound=self.bound,
            repeat=self.repeat,
            case=self.case,
            replay=self.replay,
            progress=progress,
        )


def _made(candidate: Any, conventions: Conventions | None) -> Any:
    """The object to be checked, as the command line makes it of a name."""
    if isinstance(candidate, str):
        return load(candidate, conventions)
    if inspect.isclass(candidate) or inspect.isroutine(candidate):
        make: Any = candidate
        candidate = make(conventions) if inspect.signature(make).parameters else make()
    for required in ("name", "conventions"):
        if not hasattr(candidate, required):
            raise ValueError(
                f"`assert_crosscheck(candidate=...)` should have an attribute `{required}`, got {candidate!r}"
            )
    return candidate

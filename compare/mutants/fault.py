"""A structural fault, and a right candidate that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from dsa_crosscheck.reference.cache import key_layout
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.layout import PageLayout


@dataclass(frozen=True)
class Right:
    """What a faulty method is made of: the right candidate, and the inputs it will be given.

    ``calls`` counts calls from 1, for faults that not every call has.
    """

    candidate: Any
    inputs: Inputs
    calls: count[int] = field(default_factory=lambda: count(1))

    @property
    def conventions(self) -> Conventions:
        """What the right candidate means to compute."""
        return self.candidate.conventions

    @property
    def layout(self) -> PageLayout:
        """Layout of the cache that the right candidate writes and reads."""
        return key_layout(self.conventions.key, self.inputs.geometry, self.conventions.page_order)


@dataclass(frozen=True)
class Fault:
    """A mistake in one stage.

    ``name`` is unique; ``stage`` the candidate method that has it; ``what`` a sentence for a reader.
    ``method(right, *arguments)`` replaces the candidate's method: it gets a ``Right`` and the
    method's own arguments (torch tensors on the CPU, see ``Candidate``), which it doesn't write to
    unless that is the fault. ``needs_repeat``: a single call may be right; only repeats show it.
    """

    name: str
    stage: str
    what: str
    method: Callable[..., Any]
    needs_repeat: bool = False

    def apply(self, candidate: Any, inputs: Inputs) -> Faulty:
        """``candidate`` with this fault, everything else as it was. ``inputs``: those it will be run on.

        ``ValueError`` when the candidate has no such method.
        """
        if not callable(getattr(candidate, self.stage, None)):
            raise ValueError(f"`Fault.apply(candidate=...)` should have a method {self.stage!r}, got {candidate!r}")
        return Faulty(candidate, self, inputs)


class Faulty:
    """A candidate whose method of one stage is faulty; anything else is the right candidate's own."""

    def __init__(self, candidate: Any, fault: Fault, inputs: Inputs) -> None:
        self.name = f"{candidate.name} with {fault.name}"
        self._candidate = candidate
        setattr(self, fault.stage, partial(fault.method, Right(candidate, inputs)))

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._candidate, attribute)

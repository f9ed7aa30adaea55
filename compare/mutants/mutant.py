"""One mutant: a right candidate, changed in one known way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dsa_crosscheck.compare.candidates.protocol import FUSED, STAGES
from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.fields import FIELDS, POINTS_OF
from dsa_crosscheck.compare.mutants.cases import DEFAULT, REVEALED_BY
from dsa_crosscheck.compare.mutants.faults import FAULTS
from dsa_crosscheck.reference.conventions import Conventions, flips
from dsa_crosscheck.reference.inputs import Inputs

RUN_ONLY = ("rope_position", "causal")
"""Fields that reach the stages as positions and lengths, so that only a fused candidate has them wrong."""


@dataclass(frozen=True)
class Mutant:
    """``name`` is ``field=value``, ``bf16_points+point``, ``bf16_points-point`` or a fault's name.

    ``stage``: the candidate method that is wrong; ``case``: the inputs that show it. ``make(right,
    inputs)`` returns the mutant of a right candidate. ``needs_repeat`` as in ``Fault``.
    """

    name: str
    stage: str
    what: str
    case: str
    make: Callable[[Any, Inputs], Any]
    needs_repeat: bool = False

    @property
    def field(self) -> str:
        """The flipped field's path, or the name."""
        return self.name.partition("=")[0]


def flip_mutants(conventions: Conventions) -> Iterator[Mutant]:
    """Every one-field flip, as the reference under the flipped conventions."""
    for path, value, flipped in flips(conventions):
        if path == "bf16_points":
            (point,) = flipped.bf16_points ^ conventions.bf16_points
            name = f"bf16_points{'+' if point in flipped.bf16_points else '-'}{point}"
            stage = "encode_query" if point in POINTS_OF["query"] else "store_keys"
        else:
            name = f"{path}={value:.3g}" if isinstance(value, float) else f"{path}={value}"
            stage = FUSED if path in RUN_ONLY else next(s for s in STAGES if path in FIELDS[s])
        make = _flipped(FusedReference if stage == FUSED else ReferenceCandidate, flipped)
        yield Mutant(name, stage, f"{name} in place of the declared value", REVEALED_BY.get(path, DEFAULT), make)


def fault_mutants() -> Iterator[Mutant]:
    """Every structural fault."""
    for fault in FAULTS.values():
        case = REVEALED_BY.get(fault.name, DEFAULT)
        yield Mutant(fault.name, fault.stage, fault.what, case, fault.apply, fault.needs_repeat)


def _flipped(kind: Callable[[Conventions], Any], conventions: Conventions) -> Callable[[Any, Inputs], Any]:
    return lambda right, inputs: kind(conventions)

"""What an assertion is about: a fixture, or inputs with conventions."""

from __future__ import annotations

from dsa_crosscheck.compare.testing.case import Case
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import preset as named_preset


def inputs_of(function: str, case: Case | Inputs) -> Inputs:
    """The inputs of ``case``; ``TypeError`` for anything else than a fixture or ``Inputs``."""
    if isinstance(case, Inputs):
        return case
    if not isinstance(case, Case):
        raise TypeError(f"`{function}(case=...)` should be the fixture dsa_case or Inputs, got {type(case).__name__}")
    return case.inputs


def name_of(case: Case | Inputs) -> str:
    """What to call ``case`` in a report."""
    return "inputs of the test" if isinstance(case, Inputs) else case.name


def conventions_for(function: str, case: Case | Inputs, preset: str | Conventions | None) -> Conventions:
    """Conventions to judge by: ``preset``, else the fixture's. ``ValueError`` when neither has any."""
    if isinstance(preset, Conventions):
        return preset
    if preset is not None:
        return named_preset(preset).conventions
    if isinstance(case, Inputs):
        raise ValueError(f"`{function}(preset=...)` should be given with Inputs, which have no conventions, got None")
    return case.conventions

"""Which accumulator model judges a candidate when the caller names none."""

from __future__ import annotations

from typing import Any

from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.models import MODEL_OF_ROUNDING, MODELS, AccumulatorModel


def declared_model(candidate: Any, conventions: Conventions) -> AccumulatorModel:
    """The model that the candidate's attribute ``accumulator`` names, else the one that ``conventions`` imply.

    ``ValueError`` for a name that is no model.
    """
    name = getattr(candidate, "accumulator", None)
    if name is None:
        return implied_model(conventions)
    if name not in MODELS:
        raise ValueError(f"`{candidate.name}.accumulator` should be one of {tuple(MODELS)}, got {name!r}")
    return MODELS[name]


def implied_model(conventions: Conventions) -> AccumulatorModel:
    """The model that the score rounding of ``conventions`` implies."""
    return MODELS[MODEL_OF_ROUNDING[conventions.score_rounding]]

"""A recipe, or any inputs, made into a golden fixture."""

from __future__ import annotations

from importlib.metadata import version

from dsa_crosscheck.compare.golden.contents import Contents
from dsa_crosscheck.fixtures.golden.conventions_json import conventions_to_json, geometry_to_json
from dsa_crosscheck.fixtures.golden.golden import Golden
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.fixtures.netcdf import Attributes
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs

GENERATOR = "dsa-crosscheck fixtures make"


def make_golden(recipe: Recipe) -> Golden:
    """The fixture of ``recipe``."""
    return golden_of(recipe.build(), recipe.conventions, recipe.name, {"recipe": recipe.record()})


def golden_of(inputs: Inputs, conventions: Conventions, name: str, provenance: Attributes) -> Golden:
    """Every stage of ``inputs`` under ``conventions`` as a fixture called ``name``.

    ``provenance``: further attributes that say where the inputs come from.
    """
    contents = Contents(inputs, conventions)
    attributes: Attributes = {
        "name": name,
        "generator": GENERATOR,
        "version": version("dsa-crosscheck"),
        "geometry": geometry_to_json(inputs.geometry),
        "conventions": conventions_to_json(conventions),
        **contents.attributes,
        **provenance,
    }
    return Golden(contents.arrays(), attributes)

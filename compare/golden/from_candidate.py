"""A fixture that also holds what a candidate made of the inputs, if it makes the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.candidates.protocol import offers
from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.golden.make import make_golden
from dsa_crosscheck.compare.golden.verify import CANDIDATE
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.fixtures.golden.golden import Golden
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.fixtures.netcdf import StoredArray
from dsa_crosscheck.reference.models import MODEL_OF_ROUNDING, model

REPEATS = 5

_OUTPUTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "store_keys": (("cache", ("pages", "page_bytes")),),
    "encode_query": (("query.codes", ("rows", "heads", "query_bytes")), ("query.weights", ("rows", "heads"))),
    "score": (("scores", ("rows", "columns")),),
    "select": (("selection", ("rows", "topk")),),
}
"""Arrays that a candidate's method adds, each after ``CANDIDATE``, with their dimensions."""


def make_candidate_golden(recipe: Recipe, candidate: str) -> Golden:
    """The fixture of ``recipe`` with the outputs of the candidate of that name, a stage at a time.

    Each stage gets the reference's output of the one before. ``ValueError`` when the candidate
    fails a check on these inputs: differs from run to run, reads what it may not, depends on the
    rest of its batch, or is wrong. A fixture of such a one would fail at random, or keep a mistake.
    """
    thing = load(candidate, recipe.conventions)
    inputs = recipe.build()
    report = crosscheck(inputs, thing, preset=recipe.conventions, repeat=REPEATS, explain=False)
    bad = [line for line in report.stages if line.verdict.failed or line.verdict is Verdict.REFUSED]
    if bad:
        lines = "; ".join(f"{line.stage} {line.verdict.value}{line.note and ' (' + line.note + ')'}" for line in bad)
        raise ValueError(f"`--candidate` {candidate!r} should pass every check on {recipe.name}, got {lines}")
    if not any(line.stage.startswith("repeat") for line in report.stages):
        raise ValueError(
            f"`--candidate` {candidate!r} should have `score` or `select`, which are repeated, got one without"
        )
    setup = Setup(inputs, recipe.conventions, model(MODEL_OF_ROUNDING[recipe.conventions.score_rounding]))
    golden = make_golden(recipe)
    return Golden({**golden.arrays, **_outputs(thing, setup)}, {**golden.attributes, "candidate": thing.name})


def _outputs(candidate: Any, setup: Setup) -> dict[str, StoredArray]:
    found = {}
    for method, arrays in _OUTPUTS.items():
        if not offers(candidate, method):
            continue
        # A method that writes in place also returns what it found there first.
        made = CHECKS[method].run(candidate, setup)[-len(arrays) :]
        for (name, dims), values in zip(arrays, made, strict=True):
            found[CANDIDATE + name] = StoredArray(dims, np.ascontiguousarray(values), str(values.dtype))
    return found

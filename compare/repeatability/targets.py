"""What can be run again: the methods whose results a repetition can compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, expect
from dsa_crosscheck.compare.candidates.protocol import FUSED, offers
from dsa_crosscheck.compare.repeatability.repeats import Produced
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS, Outputs
from dsa_crosscheck.compare.stages.run import run_fused


def first_results(candidate: Any, setup: Setup, outputs: dict[str, Outputs]) -> dict[str, Produced]:
    """The whole batch's results by method: of the stages from ``outputs``, of ``run`` by calling it.

    A method that failed its own stage is left out: there is nothing to repeat.
    """
    found = {}
    if "score" in outputs:
        found["score"] = Produced(scores=outputs["score"][0])
    if "select" in outputs:
        found["select"] = Produced(selection=outputs["select"][0])
    if offers(candidate, FUSED):
        with suppress(CandidateFault):  # the end-to-end comparison reports it
            found[FUSED] = produced_by_run(candidate, setup)
    return found


def again(candidate: Any, setup: Setup, method: str) -> Callable[[], Produced]:
    """The same call once more, each time with fresh copies of the same inputs."""
    if method == FUSED:
        return lambda: produced_by_run(candidate, setup)
    stage = CHECKS[method]
    if method == "score":
        return lambda: Produced(scores=stage.run(candidate, setup)[0])
    return lambda: Produced(selection=stage.run(candidate, setup)[0])


def produced_by_run(candidate: Any, setup: Setup) -> Produced:
    """What ``run`` shows of the inputs of ``setup``: its selection (logical keys), and scores if any."""
    shown = run_fused(candidate, setup)
    rows, width = setup.inputs.rows, int(setup.trace.lengths.max(initial=0))
    scores = shown.get("scores")
    if scores is not None:
        scores = expect("run", "scores", scores[:, :width], (rows, width), (np.float32,))
    return Produced(scores, shown["selection"])

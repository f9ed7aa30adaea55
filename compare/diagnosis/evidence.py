"""What a candidate produced, in a form that can be judged again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import CHECKS, Outputs
from dsa_crosscheck.compare.stages.run import END_TO_END, judge_fused
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.models import MODEL_OF_ROUNDING, model

LINES: dict[str, str] = {
    "pool": "pool",
    "key scales": "store_keys",
    "key codes": "store_keys",
    "cache bytes": "store_keys",
    "query scales": "encode_query",
    "query codes": "encode_query",
    "head weights": "encode_query",
    "scores": "score",
    "selection": "select",
    "run: keys": FUSED,
    "run: query": FUSED,
    "run: scores": FUSED,
}
"""The candidate method that each line of a report judges."""

OPERANDS: dict[str, str] = {
    "pool": "pooled keys",
    "store_keys": "key",
    "encode_query": "query",
    "score": "scorer (the bytes of both operands are the reference's)",
    "select": "selector (the scores are the reference's)",
    "run: keys": "key",
    "run: query": "query",
    FUSED: "unknown: the candidate shows only its end",
    END_TO_END: "the chain of the candidate's own stages",
}


@dataclass(frozen=True)
class Evidence:
    """Raw outputs of each method that ran, and every line of the report.

    ``outputs``: by method, as the stage checks return them. ``shown``: what a fused candidate
    returned, None otherwise.
    """

    outputs: dict[str, Outputs]
    results: tuple[StageResult, ...]
    shown: dict[str, np.ndarray] | None = None

    def failing(self) -> list[str]:
        """Methods with a failed line, in the order of the data's path."""
        found: list[str] = []
        for result in self.results:
            method = self.method(result.stage)
            if result.verdict.failed and method not in found:
                found.append(method)
        return found

    def method(self, line: str) -> str:
        """The method behind a line; a line that a fault left is named after its method."""
        if line == END_TO_END and self.shown is not None:
            return FUSED
        return LINES.get(line, line)

    def judge(self, method: str, setup: Setup) -> list[StageResult]:
        """All lines of a method, judged by any setup. ``ValueError`` when the bytes don't fit it."""
        if method == FUSED:
            assert self.shown is not None
            lines, outcome = judge_fused(self.shown, setup, 0)
            return [*lines, outcome.result]
        outputs = self.outputs[method]
        wanted = setup.trace.codes.shape if method == "encode_query" else outputs[0].shape
        if outputs[0].shape != wanted:
            raise ValueError(f"`judge(setup=...)` should have codes {list(outputs[0].shape)}, got {list(wanted)}")
        return CHECKS[method].judge(outputs, setup)

    def has(self, method: str) -> bool:
        """Whether the method ran to its end, so that its outputs can be judged."""
        return self.shown is not None if method == FUSED else method in self.outputs


def alternate(setup: Setup, flipped: Conventions) -> Setup:
    """``setup`` judged under other conventions: the same input of every stage.

    A candidate that was given no norm bias has used none, and a score rounding implies a model.
    """
    inputs, rules = setup.inputs, setup.model
    if setup.conventions.norm == "rms" and flipped.norm == "layer":
        inputs = replace(inputs, norm_bias=np.zeros_like(inputs.norm_bias))
    if flipped.score_rounding != setup.conventions.score_rounding:
        rules = model(MODEL_OF_ROUNDING[flipped.score_rounding])
    return Setup(inputs, flipped, rules, setup.fed or setup)

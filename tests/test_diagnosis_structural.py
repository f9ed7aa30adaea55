"""Named faults are recognised in another implementation's output."""

from __future__ import annotations

import candidates
import pytest
import torch

from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.diagnosis.explanation import Explanation
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.mutants.faults import FAULTS
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
INPUTS = candidates.case()

NAMED = (
    "store-next-page",
    "query-heads-shifted",
    "query-head-dropped",
    "score-head-dropped",
    "score-relu-after-weight",
    "score-another-request",
    "score-neighbour-scale",
    "score-last-page-zero",
    "score-newest-zero",
    "score-row-shifted",
)
"""Faults that show in the plain case, each put into the torch path and not into the reference."""


def explained(name: str) -> Explanation:
    faulty = FAULTS[name].apply(candidates.right(), INPUTS)
    report = crosscheck(INPUTS, faulty, preset=FP8, repeat=0)
    assert report.explanation is not None
    return report.explanation


@pytest.mark.parametrize("name", NAMED)
def test_a_fault_in_the_torch_path_is_named(name: str) -> None:
    found = explained(name)
    assert name in [cause.name for cause in found.causes]
    assert FAULTS[name].what in found.cause
    assert found.exhausted


@pytest.mark.parametrize("preset", ["sglang-v4-fp8", "sglang-v4-fp4"])
def test_a_torch_path_that_takes_half_of_a_groups_maximum_is_named(preset: str) -> None:
    def of_half(values: torch.Tensor, dim: int) -> torch.Tensor:
        return values[..., : values.shape[-1] // 2].max(dim=dim).values

    def store(base: Unfused, *arguments: torch.Tensor) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "amax", of_half)
            base.store_keys(*arguments)

    faulty = candidates.Altered(candidates.right(preset), store_keys=store)
    report = crosscheck(candidates.case(preset), faulty, preset=PRESETS[preset].conventions, repeat=0)
    assert report.explanation is not None
    assert [cause.name for cause in report.explanation.causes] == ["store-amax-of-half"]


def test_other_faults_of_the_stage_are_tried_and_not_named() -> None:
    found = explained("score-head-dropped")
    tried = {trial.name: trial.outcome for trial in found.trials if trial.name in FAULTS}
    assert tried["score-head-dropped"] == "explains"
    assert tried["score-newest-zero"] == "does not"
    assert [cause.name for cause in found.causes] == ["score-head-dropped"]

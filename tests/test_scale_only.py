"""One constant ratio: found where it is all that is wrong, named where its origin is known."""

from __future__ import annotations

from math import sqrt

import candidates
import numpy as np
import pytest
import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.scale_only import constant_ratio
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
G = Geometry()
WANT = np.random.default_rng(3).standard_normal(200)
BOUND = np.full(200, 1e-6)


def ratio_of(got: np.ndarray, line: str = "scores") -> object:
    return constant_ratio(got, WANT, BOUND, line, G)


@pytest.mark.parametrize(
    ("factor", "suggestion"),
    [
        (2.0, "other flavour"),
        (0.5, "other flavour"),
        (0.25, "both operands"),
        (128.0, "not normalised on both sides"),
        (sqrt(128), "not normalised on one side"),
        (sqrt(128 * 64), "head_dim^-1/2 heads^-1/2 is missing"),
        (8.0, "heads^-1/2 is missing"),
        (448.0, "amax / 448"),
        (-1.0, "the sign is reversed"),
    ],
)
def test_known_factors_suggest_their_origin(factor: float, suggestion: str) -> None:
    found = ratio_of(WANT * factor)
    assert found is not None
    assert found.value == pytest.approx(factor, rel=1e-12)
    assert any(suggestion in text for text in found.suggests)
    assert suggestion in found.sentence


def test_unknown_factor_is_given_without_a_guess() -> None:
    found = ratio_of(WANT * 1.37)
    assert found is not None
    assert found.value == pytest.approx(1.37, rel=1e-5)
    assert found.suggests == ()
    assert "no known factor" in found.sentence


def test_noise_within_the_bound_is_allowed_and_beyond_it_not() -> None:
    noise = np.random.default_rng(4).uniform(-1, 1, WANT.size)
    assert ratio_of(2 * (WANT + 0.9e-6 * noise)) is not None
    assert ratio_of(2 * (WANT + 1e-4 * noise)) is None


@pytest.mark.parametrize(
    "got",
    [
        WANT,
        WANT + 5e-7,
        np.where(WANT > 0, 2 * WANT, WANT),
        WANT * 0,
        np.where(WANT > 2, np.nan, 2 * WANT),
        WANT[::-1] * 2,
    ],
    ids=["equal", "within the bound", "some only", "all zero", "NaN", "other order"],
)
def test_anything_else_is_no_constant_ratio(got: np.ndarray) -> None:
    assert ratio_of(got) is None


def test_zeros_must_stay_zero_and_few_elements_show_nothing() -> None:
    want = np.append(WANT, 0.0)
    bound = np.append(BOUND, 1e-6)
    assert constant_ratio(np.append(2 * WANT, 0.0), want, bound, "scores", G) is not None
    assert constant_ratio(np.append(2 * WANT, 0.1), want, bound, "scores", G) is None
    assert constant_ratio(2 * WANT[:7], WANT[:7], BOUND[:7], "scores", G) is None
    assert constant_ratio(WANT[:0], WANT[:0], BOUND[:0], "scores", G) is None


def lines(candidate: object, inputs: object = None, preset: str = "sglang-v4-fp8") -> dict[str, StageResult]:
    report = crosscheck(inputs or candidates.case(preset), candidate, preset=preset, repeat=0, explain=False)
    return {result.stage: result for result in report.stages}


def test_scores_off_by_one_factor() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        return base.score(*args) * 0.5

    found = lines(candidates.Altered(ReferenceCandidate(FP8), score=score))
    assert found["scores"].verdict == Verdict.SCALE_ONLY
    assert "0.5 times the reference everywhere" in found["scores"].note
    assert found["end to end"].verdict.passed


def test_head_weights_without_their_constant() -> None:
    found = lines(ReferenceCandidate(FP8.with_field("weight_scale", "none")))
    assert found["head weights"].verdict == Verdict.SCALE_ONLY
    assert "90.5097 times" in found["head weights"].note


def test_unnormalised_hadamard_shows_in_key_scales_and_not_in_codes() -> None:
    found = lines(ReferenceCandidate(FP8.with_field("hadamard_scale", "none")))
    assert found["key scales"].verdict == Verdict.SCALE_ONLY
    assert "11.3137 times" in found["key scales"].note
    assert "not normalised" in found["key scales"].note
    assert found["key codes"].verdict.passed


def test_the_whole_is_scale_only_and_has_a_cause() -> None:
    unscaled = ReferenceCandidate(FP8.with_field("weight_scale", "none"))
    report = crosscheck(candidates.case(), unscaled, preset=FP8, repeat=0)
    assert report.verdict == Verdict.SCALE_ONLY
    assert report.explanation is not None
    assert "weight_scale is none" in report.explanation.cause


def test_a_factor_that_no_field_gives_is_the_cause_itself() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        return base.score(*args) * 128.0

    loud = candidates.Altered(ReferenceCandidate(FP8), score=score)
    report = crosscheck(candidates.case(), loud, preset=FP8, repeat=0)
    assert report.explanation is not None
    assert "128 times the reference everywhere" in report.explanation.cause

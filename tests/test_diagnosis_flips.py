"""Every field set otherwise is named as the cause, and nothing is named that does not explain."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import small_cases
import torch

from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.explanation import Cause, Explanation
from dsa_crosscheck.compare.diagnosis.meaning import shown
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.reference.conventions import Conventions, flips
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
ONLY_FUSED = {"causal", "rope_position"}
"""Fields that a caller's arguments carry from stage to stage: only ``run`` can get them wrong."""

EQUIVALENT: dict[str, str] = {
    "key.scale_from": "both quotients lie within the freedom of an approximate division",
    "key.apply": "both products lie within the freedom of one rounding",
    "query.scale_from": "as for keys",
    "query.apply": "as for keys",
    "key.floor_on": "a zero vector: under the tiny floor both scales lie within what underflow may leave",
    "query.floor_on": "as for keys",
    "key.ties": "no small case has exact midpoints on the key path, which rounds nothing before them",
    "topk_ties": "any choice among equal scores is right",
    "topk_order": "a declared order of any accepts every order",
    "topk_nan": "no finite input makes a NaN score",
    "topk_padding": "future padding names keys that are not visible, as every legal padding does",
    "rope_position": "one key a token has one position; and bf16 scores bound a fused selection too widely",
    "weight_dtype": "float32 weights lie within the freedom of rounding to bf16",
    "score_rounding": "an exact score lies within the bound of a rounded one",
    "bf16_points": "rounding to bf16 twice in a row is rounding once",
    "page_order": "records without scales are the same bytes in both orders",
}
"""Fields with a flip that no small case shows, and why a correct implementation may have either value."""


def faint() -> Inputs:
    """Keys and queries far below one amax floor and above another, none of them zero."""
    inputs = small_cases.mixed()
    tiny = np.float32(1e-13)
    return replace(inputs, norm_weight=inputs.norm_weight * tiny, query=inputs.query * tiny)


def quiet() -> Inputs:
    """Pooled keys whose mean square is about the norm's epsilon."""
    inputs = small_cases.mixed()
    return replace(inputs, pooled=inputs.pooled * np.float32(1e-3))


CASES = {**small_cases.ALL, "quiet": quiet, "faint": faint}


@functools.cache
def case(name: str) -> Inputs:
    return CASES[name]()


def explained(candidate: object, inputs: Inputs, conventions: Conventions) -> Explanation | None:
    return crosscheck(inputs, candidate, preset=conventions, repeat=0).explanation


def is_flip(cause: Cause, path: str, value: object) -> bool:
    return len(cause.change) == 1 and cause.change[0][0] == path and cause.change[0][2] == shown(value)


def check_preset(name: str) -> None:
    """Each flip that fails some case is named by one of those cases, as the best cause of its stage."""
    conventions = PRESETS[name].conventions
    named, silent = [], []
    for path, value, flipped in flips(conventions):
        candidate = (FusedReference if path in ONLY_FUSED else ReferenceCandidate)(flipped)
        failed = False
        for case_name in CASES:
            found = explained(candidate, case(case_name), conventions)
            failed = failed or found is not None
            if found is not None and any(is_flip(cause, path, value) for cause in _best(found)):
                named.append((path, shown(value)))
                break
        else:
            assert not failed, f"{path} = {shown(value)} fails and is not named"
            silent.append((path, shown(value)))
    assert len(named) > 2 * len(silent)
    assert {path for path, _ in silent} <= set(EQUIVALENT)


def _best(found: Explanation) -> list[Cause]:
    """The first cause of each stage, with those that leave exactly as little."""
    best: list[Cause] = []
    for stage in dict.fromkeys(cause.stage for cause in found.causes):
        mine = [cause for cause in found.causes if cause.stage == stage]
        best += [cause for cause in mine if cause.residual_after.differing == mine[0].residual_after.differing]
    return best


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the tiny floor overflows the reciprocal
def test_every_flip_of_the_default_preset_is_named() -> None:
    check_preset("sglang-v4-fp8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "sglang-v4-fp8"])
def test_every_flip_of_the_other_presets_is_named(preset: str) -> None:
    check_preset(preset)


def test_cause_is_a_sentence_with_both_residuals() -> None:
    flipped = FP8.with_field("rope_pairing", "half-split")
    found = explained(ReferenceCandidate(flipped), case("mixed"), FP8)
    assert found is not None
    cause = found.causes[0]
    assert cause.residual_before.unexplained > 100
    assert cause.residual_after.unexplained == 0
    assert cause.change == (("rope_pairing", "interleaved", "half-split"),)
    assert "matches if rope_pairing is half-split instead of interleaved" in found.cause


def test_one_change_on_both_operands_is_said_to_be_one() -> None:
    found = explained(ReferenceCandidate(FP8.with_field("rope_pairing", "half-split")), case("mixed"), FP8)
    assert found is not None
    assert "they agree with each other, not with the reference" in found.graft_sentence


def test_score_rounding_prefers_the_narrowest_type() -> None:
    found = explained(ReferenceCandidate(FP8.with_field("score_rounding", "bf16")), case("mixed"), FP8)
    assert found is not None
    assert found.causes[0].change[0][2] == "bf16"


class Wrapped:
    """The reference with something done to a method's result or arguments."""

    name = "wrapped"

    def __init__(self, conventions: Conventions = FP8) -> None:
        self.conventions = conventions
        self.base = ReferenceCandidate(conventions)

    def __getattr__(self, method: str) -> object:
        if method.startswith("_") or method == "run":
            raise AttributeError(method)
        return getattr(self.base, method)


class LastToken(Wrapped):
    def store_keys(self, pooled: torch.Tensor, weight: torch.Tensor, table: torch.Tensor, *rest: torch.Tensor) -> None:
        positions, slots, cache = rest
        self.base.store_keys(pooled, weight, table, positions + 3, slots, cache)


def test_a_store_that_moves_positions_is_a_rope_position() -> None:
    found = explained(LastToken(), case("mixed"), FP8)
    assert found is not None
    assert found.first_stage in ("key scales", "key codes")
    assert is_flip(found.causes[0], "rope_position", "group-last")


def test_two_fields_at_once_are_found_as_a_pair() -> None:
    both = FP8.with_field("rope_pairing", "half-split").with_field("norm", "layer")
    found = explained(ReferenceCandidate(both), case("mixed"), FP8)
    assert found is not None
    stored = [cause for cause in found.causes if cause.stage == "store_keys"]
    assert {path for path, _, _ in stored[0].change} == {"rope_pairing", "norm"}
    assert all(len(cause.change) == 2 for cause in stored)


class Noisy(Wrapped):
    """Scores off by a random thousandth: too much for float32, and no type that anybody stores."""

    def score(self, *args: torch.Tensor) -> torch.Tensor:
        scores = self.base.score(*args)
        noise = torch.randn(scores.shape, generator=torch.Generator().manual_seed(5))
        return torch.where(torch.isfinite(scores), scores * (1 + 1e-3 * noise), scores)


class Corrupt(Wrapped):
    """A few random bytes of the cache overwritten after the store."""

    def store_keys(self, *args: torch.Tensor) -> None:
        self.base.store_keys(*args)
        cache = args[-1]
        at = torch.randint(cache.numel(), (40,), generator=torch.Generator().manual_seed(6))
        cache.view(-1)[at] ^= 0x55


@pytest.mark.parametrize("candidate", [Noisy(), Corrupt()], ids=["scores", "store"])
def test_random_damage_is_unexplained(candidate: Wrapped) -> None:
    found = explained(candidate, case("mixed"), FP8)
    assert found is not None
    assert found.cause == "unexplained"
    assert found.causes == ()
    assert any(trial.outcome == "does not" for trial in found.trials)


def test_a_passing_candidate_has_no_explanation_and_asking_can_be_left_out() -> None:
    assert explained(ReferenceCandidate(FP8), case("mixed"), FP8) is None
    report = crosscheck(case("mixed"), Noisy(), preset=FP8, repeat=0, explain=False)
    assert report.verdict.failed
    assert report.explanation is None

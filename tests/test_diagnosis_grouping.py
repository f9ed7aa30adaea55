"""Groups that hold all errors are named; scattered errors have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import candidates
import numpy as np
import pytest
import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.explanation import Explanation
from dsa_crosscheck.compare.diagnosis.grouping import find_groups
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
INPUTS = candidates.case()
MANY_ROWS = candidates.case(context=512, rows=32)


def setup() -> Setup:
    return Setup(INPUTS, FP8, model("ieee-fp32"))


def explained(**changes: Callable[..., object]) -> Explanation:
    report = crosscheck(INPUTS, candidates.Altered(ReferenceCandidate(FP8), **changes), preset=FP8, repeat=0)
    assert report.explanation is not None
    return report.explanation


def phrases(line: str, inputs: Inputs = INPUTS, **changes: Callable[..., object]) -> list[str]:
    """Groups of one line of a comparison with an altered reference."""
    altered = candidates.Altered(ReferenceCandidate(FP8), **changes)
    report = crosscheck(inputs, altered, preset=FP8, repeat=0, explain=False)
    (result,) = [r for r in report.stages if r.stage == line]
    groups = find_groups(result, Setup(inputs, FP8, model("ieee-fp32")))
    return [group.sentence.removeprefix("all errors lie in ") for group in groups]


def on_keys(chosen: np.ndarray) -> Callable[..., None]:
    """A store that puts the negated element into the records of the chosen keys."""

    def store(base: ReferenceCandidate, *args: torch.Tensor) -> None:
        *before, slots, cache = args
        flipped = before[0].clone()
        flipped[torch.from_numpy(chosen)] *= -1
        base.store_keys(flipped, *before[1:], slots, cache)

    return store


def test_one_request() -> None:
    found = explained(store_keys=on_keys(INPUTS.key_request == 1))
    assert found.first_stage == "key codes"
    assert "request 1" in found.where


def test_last_token_of_each_page() -> None:
    assert "token of its page 63" in phrases("key codes", store_keys=on_keys(INPUTS.slots % 64 == 63))


def test_pages_from_one_on() -> None:
    page = INPUTS.slots // 64
    first = int(np.sort(np.unique(page))[-3])
    assert f"physical page >= {first}" in phrases("key codes", store_keys=on_keys(page >= first))


def test_writers_of_one_parity() -> None:
    odd = on_keys(np.arange(INPUTS.keys) % 2 == 1)
    assert "odd writer (place in the plan)" in phrases("key codes", store_keys=odd)


def test_one_head_and_dim() -> None:
    def encode(base: ReferenceCandidate, *args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes, weights = base.encode_query(*args)
        codes[:, 5, 9] ^= 0x80
        return codes, weights

    assert {"head 5", "dim 9"} <= set(phrases("query codes", encode_query=encode))


def test_odd_rows() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = base.score(*args)
        scores[1::2] += 1.0
        return scores

    assert "odd row" in phrases("scores", MANY_ROWS, score=score)


def test_newest_key_of_each_row() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores, lengths = base.score(*args), args[-1].long()
        rows = torch.nonzero(lengths > 0)[:, 0]
        scores[rows, lengths[rows] - 1] = 0.0
        return scores

    assert "distance from the row's newest key 0" in phrases("scores", score=score)
    assert any("exactly 0 and the reference's is not" in fact for fact in explained(score=score).facts)


def mask_result(wrong: np.ndarray) -> StageResult:
    return StageResult("scores", Verdict.VIOLATION, wrong.size, int(wrong.sum()), wrong=wrong)


def test_one_row_alone_is_named_and_not_its_parity() -> None:
    wrong = np.zeros(setup().shared_scores[0].values.shape, bool)
    row = int(setup().trace.lengths.argmax())
    wrong[row, : int(setup().trace.lengths[row])] = True
    found = [group.sentence for group in find_groups(mask_result(wrong), setup())]
    assert f"all errors lie in row {row}" in found
    assert not any("odd" in sentence or "even" in sentence for sentence in found)


@pytest.mark.parametrize("seed", range(5))
def test_scattered_errors_have_no_group(seed: int) -> None:
    lengths = setup().trace.lengths
    seen = np.arange(int(lengths.max()))[None] < lengths[:, None]
    wrong = seen & (np.random.default_rng(seed).random(seen.shape) < 0.05)
    assert find_groups(mask_result(wrong), setup()) == []


def test_everything_is_no_group() -> None:
    lengths = setup().trace.lengths
    wrong = np.arange(int(lengths.max()))[None] < lengths[:, None]
    assert [g for g in find_groups(mask_result(wrong), setup()) if g.share == 1.0] == []


def test_impossible_sign_is_stated() -> None:
    positive = replace(INPUTS, gate=np.abs(INPUTS.gate))
    report = crosscheck(positive, ReferenceCandidate(FP8.with_field("relu", False)), preset=FP8, repeat=0)
    assert report.explanation is not None
    assert any("ReLU makes impossible" in fact for fact in report.explanation.facts)


def test_first_nan_is_placed() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = base.score(*args)
        row = int(args[-1].argmax())
        scores[row, 3] = torch.nan
        scores[row, 7] = torch.nan
        return scores

    row = int(setup().trace.lengths.argmax())
    assert any(f"2 NaN where the reference has numbers, first at ({row}, 3)" in f for f in explained(score=score).facts)

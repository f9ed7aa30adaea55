"""A10: a full candidate buffer. A11: unfilled slots under ties. A12: NaN scores that become indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, aimed, along_first, inputs_of
from verdicts import changed, fails, judged, line, passes, said, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.nan_policy import nan_policy
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs

DIM = 8
Select = Callable[..., torch.Tensor]


def scored(scores: np.ndarray, topk: int, rows: int = 1) -> Inputs:
    """One request whose keys have these products with every row's query.

    Head weights differ from row to row by a little, so that rows can be told apart.
    """
    geometry = Geometry(heads=1, head_dim=DIM, rope_dim=2, compress_ratio=1, topk=topk)
    gate = 1 + np.arange(rows)[:, None] / 1024
    places = [(0, scores.size - 1)] * rows
    return inputs_of(geometry, [aimed(scores, DIM)], places, along_first(rows, 1, DIM), gate)


def buffered(capacity: int) -> Select:
    """A radix select whose k-th value's bin (sign and exponent) goes to a buffer; what comes later is lost."""

    def select(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        chosen = right.select(scores, lengths, topk)
        for row, length in enumerate(lengths.tolist()):
            seen = scores[row, :length]
            exponent = torch.frexp(seen).exponent
            kth = exponent[seen.argsort(descending=True, stable=True)[topk - 1]]
            above = torch.nonzero(exponent > kth)[:, 0]
            kept = torch.nonzero(exponent == kth)[:capacity, 0]
            best = kept[seen[kept].argsort(descending=True, stable=True)][: topk - above.numel()]
            chosen[row] = torch.cat([above, best]).int()
        return chosen

    return select


def crowd(keys: int, seed: int = 0) -> np.ndarray:
    """Scores that share one exponent after the weight's factor; the last of them is the largest."""
    scores = np.random.default_rng(seed).uniform(1.45, 1.8, keys)
    scores[-1] = 1.81
    return scores


def test_a10_one_candidate_more_than_the_buffer_holds() -> None:
    inputs = scored(crowd(16385), 2048, rows=33)
    passes(inputs, EXACT)
    report = judged(inputs, changed(EXACT, select=buffered(16384)), EXACT, explain=False)
    fails(
        report,
        Verdict.VIOLATION,
        "selection",
        r"33 selected values are below the k-th largest of the row, by at most \d\S*e-0[456], "
        "in 33 of 33 rows; 16,385 of 16,385 values share the k-th's sign and exponent",
    )
    assert line(report, "selection").differing == 33
    assert report.selection is not None
    assert report.selection.overlap_min > 0.999  # what a floor on the overlap lets pass


def test_a10_as_many_as_the_buffer_holds() -> None:
    inputs = scored(crowd(16384), 2048)
    assert judged(inputs, changed(EXACT, select=buffered(16384)), EXACT).verdict.passed


def test_a10_half_of_the_candidates_lost() -> None:
    inputs = scored(crowd(8192, seed=1), 512)
    passes(inputs, EXACT)
    report = judged(inputs, changed(EXACT, select=buffered(4096)), EXACT, explain=False)
    fails(
        report, Verdict.VIOLATION, "selection", r"2\d\d selected values are below .* by at most 0\.0\d+, in 1 of 1 rows"
    )
    assert report.selection is not None
    assert 0.4 < report.selection.overlap_mean < 0.6


def test_a10_another_bin_may_be_as_full_as_it_likes() -> None:
    """The k-th value lies above the crowd: nothing of the crowd is needed."""
    scores = crowd(9000, seed=2)
    scores[::10] *= -1  # never selected, in no bin of a positive value
    scores[5000:5600] = np.linspace(0.1, 0.2, 600)
    scores[1:500] = np.linspace(1.9, 2.8, 499)
    inputs = scored(scores, 200)
    passes(inputs, EXACT)
    assert judged(inputs, changed(EXACT, select=buffered(4096)), EXACT).verdict.passed


def ties_kept(most: int, filler: int = -1) -> Select:
    """No more than ``most`` values that equal the k-th are written; the rest of the row holds ``filler``."""

    def select(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        chosen = right.select(scores, lengths, topk)
        for row, length in enumerate(lengths.tolist()):
            kth = scores[row, :length].sort(descending=True).values[topk - 1]
            above = chosen[row][scores[row, chosen[row].long()] > kth]
            ties = chosen[row][scores[row, chosen[row].long()] == kth][:most]
            kept = torch.cat([above, ties])
            chosen[row] = filler
            chosen[row, : kept.numel()] = kept
        return chosen

    return select


def zeros_below(winners: int, keys: int) -> np.ndarray:
    """``winners`` distinct scores among exact zeros."""
    scores = np.zeros(keys)
    scores[np.random.default_rng(3).permutation(keys)[:winners]] = np.linspace(0.5, 2.0, winners)
    return scores


def test_a11_empty_slots_under_a_plateau_of_zeros() -> None:
    inputs = scored(zeros_below(100, 8320), 2048)
    passes(inputs, EXACT)
    report = judged(inputs, changed(EXACT, select=ties_kept(1024)), EXACT, explain=False)
    fails(
        report,
        Verdict.MALFORMED,
        "selection",
        "924 of 2048 slots hold no visible key in row 0",
        r"equal scores at the k-th place decide 1 of 1 rows \(up to 8,220\)",
    )


@pytest.mark.parametrize(("winners", "invalid"), [(1024, 0), (1023, 1)])
def test_a11_one_tie_more_than_is_kept(winners: int, invalid: int) -> None:
    inputs = scored(zeros_below(winners, 4100), 2048)
    report = judged(inputs, changed(EXACT, select=ties_kept(1024)), EXACT, explain=False)
    assert report.verdict.passed == (invalid == 0)
    assert f"{invalid} of 2048 slots hold no visible key" in said(report) or not invalid


@pytest.mark.parametrize("filler", [8320, 2**31 - 1, -7])
def test_a11_unwritten_slots_hold_anything(filler: int) -> None:
    inputs = scored(zeros_below(100, 8320), 2048)
    report = judged(inputs, changed(EXACT, select=ties_kept(1024, filler)), EXACT, explain=False)
    fails(report, Verdict.MALFORMED, "selection", "924 of 2048 slots hold no visible key in row 0")


def test_a11_any_choice_among_equal_scores_is_right() -> None:
    inputs = scored(zeros_below(100, 8320), 2048)
    report = judged(inputs, changed(EXACT, select=under("topk_ties", "high-index", "select")), EXACT)
    assert report.verdict is Verdict.TIE
    assert line(report, "selection").differing > 900


def nan_bits(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
    """NaN ranks first, and what is written is its bits."""
    chosen = torch.topk(scores, topk).indices.int()
    picked = scores.gather(1, chosen.long())
    return torch.where(torch.isnan(picked), picked.view(torch.int32), chosen)


def nan_score(*keys: int, sign: float = 1.0) -> Any:
    """A scorer whose first row has NaN at these keys."""

    def score(right: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = right.score(*args)
        scores[0, list(keys)] = float(np.copysign(np.nan, sign))
        return scores

    return score


def eight() -> Inputs:
    """One row, k = 4, 8 scores."""
    inputs = scored(np.array([0.3, 1.2, 0.7, 2.0, 1.1, 0.2, 1.9, 0.4]), 4)
    passes(inputs, EXACT, changed(EXACT, select=nan_bits))
    return inputs


@pytest.mark.parametrize(("keys", "lost"), [((5,), 1), (tuple(range(8)), 4)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a12_the_scorer_is_first_at_fault_and_the_selector_lets_it_out(
    keys: tuple[int, ...], lost: int, sign: float
) -> None:
    report = judged(eight(), changed(EXACT, score=nan_score(*keys, sign=sign), select=nan_bits), EXACT)
    fails(
        report,
        Verdict.VIOLATION,
        "scores",
        rf"scores: {len(keys)} NaN where the reference has numbers, first at \(0, {keys[0]}\)",
        f"end to end: {lost} of 4 slots hold no visible key in row 0",
    )
    assert line(report, "selection").verdict.passed
    assert line(report, "end to end").verdict is Verdict.MALFORMED


def test_a12_a_selector_that_ranks_nan_spoils_only_the_choice() -> None:
    """The scorer is at fault all the same; but every index is one of a key."""
    report = judged(eight(), changed(EXACT, score=nan_score(5)), EXACT, explain=False)
    fails(report, Verdict.VIOLATION, "scores")
    assert line(report, "end to end").verdict is not Verdict.MALFORMED


def torch_topk(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
    """torch ranks NaN of either sign first."""
    return torch.topk(scores, topk).indices.int()


def by_bits(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
    """Ordered by bits, as a radix select does: +NaN above inf, -NaN below -inf."""
    bits = scores.view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.topk(ordered, topk).indices.int()


@pytest.mark.parametrize(
    ("select", "declared", "policy", "verdict"),
    [
        (None, "last", "last", Verdict.IDENTICAL),
        (None, "first", "first", Verdict.IDENTICAL),
        (torch_topk, "first", "first", Verdict.IDENTICAL),
        (torch_topk, "last", "first", Verdict.VIOLATION),
        (by_bits, "first", "+NaN ranks first and the NaN of the other sign last", Verdict.VIOLATION),
        (nan_bits, "first", "none", Verdict.MALFORMED),
    ],
)
def test_a12_nan_policy_is_stated(select: Any, declared: str, policy: str, verdict: Verdict) -> None:
    conventions = EXACT.with_field("topk_nan", declared)
    candidate = changed(conventions, select=select) if select else ReferenceCandidate(conventions)
    found = nan_policy(candidate, conventions)
    assert (found.policy, found.verdict) == (policy, verdict)
    if select is nan_bits:
        assert found.note == (
            "with 1 +NaN among 8 scores: 1 of 4 slots hold no visible key in row 0: [2143289344, 0, 1, 2]"
        )

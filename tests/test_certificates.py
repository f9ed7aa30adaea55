"""The selection certificate: it passes exactly when some admissible scores explain the returned keys."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dsa_crosscheck.compare.selection_certificate import SelectionCertificate, certify_selection
from dsa_crosscheck.compare.verdict import Verdict, overall
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select

EXAMPLES = settings(max_examples=100, deadline=None)
CONVENTIONS = PRESETS["sglang-v4-fp8"].conventions
QUARTERS = st.integers(-8, 8).map(lambda i: i / 4)
"""Multiples of 1/4: sums and comparisons are exact, and equal scores are common."""


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores and bounds of at most five keys, and a returned set of at most as many."""
    size = draw(st.integers(1, 5))
    scores = np.array(draw(st.lists(QUARTERS, min_size=size, max_size=size)))
    bound = np.abs(draw(st.lists(QUARTERS, min_size=size, max_size=size)))
    taken = draw(st.permutations(range(size)))[: draw(st.integers(1, size))]
    return scores, bound, np.array(taken)


def certify(
    scores: np.ndarray, bound: np.ndarray | None, taken: np.ndarray | list[int], nan: str = "last", max_swaps: int = 20
) -> SelectionCertificate:
    """The certificate of one row."""
    scores, taken = np.asarray(scores, np.float64), np.asarray(taken, np.int64)
    length = np.array([scores.size], np.int32)
    best = select(scores[None], length, max(taken.size, 1), CONVENTIONS.with_field("topk_nan", nan))
    bounds = None if bound is None else np.asarray(bound)[None]
    expected = [best[0, : min(scores.size, taken.size)]]
    return certify_selection([taken], expected, scores[None], bounds, length, nan=nan, max_swaps=max_swaps)


def explained(scores: np.ndarray, bound: np.ndarray, taken: np.ndarray) -> bool:
    """Whether any scores on a grid over [s - b, s + b] have ``taken`` among their best sets: by search."""
    steps = (-1.0, -0.5, 0.0, 0.5, 1.0)
    moves = np.array(list(itertools.product(steps, repeat=scores.size)))
    tried = scores + moves * bound
    left = np.setdiff1d(np.arange(scores.size), taken)
    if not left.size:
        return True
    return bool((tried[:, left].max(axis=1) <= tried[:, taken].min(axis=1)).any())


@EXAMPLES
@given(problems())
def test_passes_exactly_when_some_scores_explain_it(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, bound, taken = problem
    certificate = certify(scores, bound, taken)
    assert certificate.verdict.passed == explained(scores, bound, taken)
    assert certificate.verdict in (Verdict.IDENTICAL, Verdict.TIE, Verdict.WITHIN_BOUND, Verdict.VIOLATION)
    assert (certificate.factors[0] <= 1.0) == certificate.verdict.passed


@EXAMPLES
@given(problems())
def test_without_a_bound_only_ties_pass(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, _, taken = problem
    certificate = certify(scores, None, taken)
    best = np.sort(scores)[::-1][: taken.size]
    assert certificate.verdict.passed == (sorted(scores[taken], reverse=True) == list(best))
    assert certificate.factors[0] == (0.0 if certificate.verdict.passed else np.inf)


@EXAMPLES
@given(problems())
def test_factor_is_the_smallest_that_passes(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    scores, bound, taken = problem
    factor = certify(scores, bound, taken).factors[0]
    if np.isinf(factor):
        assert certify(scores, 1e9 * bound, taken).verdict is Verdict.VIOLATION
        return
    assert certify(scores, bound * (factor * (1 + 1e-9)), taken).verdict.passed
    assume(factor > 0)
    assert certify(scores, bound * (factor * (1 - 1e-9)), taken).verdict is Verdict.VIOLATION


def test_verdicts_of_one_row() -> None:
    scores, bound = np.array([4.0, 3.0, 3.0, 1.0]), np.full(4, 0.25)
    assert certify(scores, bound, [0, 1]).verdict is Verdict.IDENTICAL
    assert certify(scores, bound, [1, 0]).verdict is Verdict.IDENTICAL
    assert certify(scores, bound, [0, 2]).verdict is Verdict.TIE
    assert certify(scores, bound, [1, 2]).verdict is Verdict.VIOLATION
    assert certify(scores, bound, [1, 2]).factors[0] == 2.0
    assert certify(scores, 2 * bound, [1, 2]).verdict is Verdict.WITHIN_BOUND
    assert certify(scores, bound, [1, 2]).overlaps[0] == 0.5


def test_only_the_two_keys_bounds_count() -> None:
    """A loose bound on a key that is not at issue explains nothing."""
    scores = np.array([5.0, 4.0, 3.0])
    assert certify(scores, np.array([100.0, 0.5, 0.25]), [0, 2]).factors[0] == pytest.approx(4 / 3)
    # But a missed key with a loose bound may have scored low, and a returned one high.
    assert certify(scores, np.array([0.0, 1.0, 0.0]), [0, 2]).verdict is Verdict.WITHIN_BOUND
    assert certify(scores, np.array([0.0, 0.0, 1.0]), [0, 2]).verdict is Verdict.WITHIN_BOUND


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_nan_has_a_rank_and_no_bound(sign: float) -> None:
    nan = np.copysign(np.nan, sign)
    scores, bound = np.array([nan, 2.0, 1.0, -np.inf]), np.full(4, 1e6)
    assert certify(scores, bound, [1, 2], "last").verdict is Verdict.IDENTICAL
    assert certify(scores, bound, [1, 2, 3], "last").verdict is Verdict.IDENTICAL
    last = certify(scores, bound, [1, 0], "last")
    assert (last.verdict, last.factors[0]) == (Verdict.VIOLATION, np.inf)
    assert certify(scores, bound, [0, 1], "first").verdict is Verdict.IDENTICAL
    first = certify(scores, bound, [1, 2], "first")
    assert (first.verdict, first.factors[0]) == (Verdict.VIOLATION, np.inf)


def test_nans_are_equal_to_each_other_and_so_are_the_zeros() -> None:
    scores = np.array([np.nan, -np.nan, 0.0, -0.0])
    assert certify(scores, None, [0, 2], "last").verdict is Verdict.VIOLATION
    assert certify(scores, None, [2, 3, 1], "last").verdict is Verdict.TIE
    assert certify(scores, None, [3], "last").verdict is Verdict.TIE
    assert certify(scores, None, [1], "first").verdict is Verdict.TIE


def test_an_infinite_score_is_not_explained_by_a_bound() -> None:
    scores, bound = np.array([np.inf, 1.0, -np.inf]), np.ones(3)
    assert certify(scores, bound, [0, 1]).verdict is Verdict.IDENTICAL
    for wrong in ([1], [2], [0, 2]):
        assert certify(scores, bound, wrong).factors[0] == np.inf


def test_rows_are_judged_apart() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 9.0], [0.0, 0.0, 0.0]])
    lengths = np.array([3, 2, 0], np.int32)
    chosen = [np.array([0, 2]), np.array([0, 1]), np.array([], np.int64)]
    expected = [np.array([0, 1]), np.array([0, 1]), np.array([], np.int64)]
    certificate = certify_selection(chosen, expected, scores, np.full((3, 3), 0.25), lengths, nan="last")
    assert certificate.verdicts == (Verdict.VIOLATION, Verdict.IDENTICAL, Verdict.IDENTICAL)
    assert certificate.verdict is Verdict.VIOLATION
    np.testing.assert_array_equal(certificate.factors, [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(certificate.overlaps, [0.5, 1.0, 1.0])


def test_no_rows_are_identical_and_nothing_for_something_is_not() -> None:
    none = certify_selection([], [], np.zeros((0, 4)), None, np.zeros(0, np.int32), nan="last")
    assert (none.verdict, none.factors.size, none.swaps) == (Verdict.IDENTICAL, 0, ())
    empty = [np.array([], np.int64)]
    missing = certify_selection(empty, [np.array([0])], np.ones((1, 4)), None, np.array([4]), nan="last")
    assert missing.verdict is Verdict.VIOLATION


def test_swaps_are_the_widest_and_capped() -> None:
    scores, bound = np.arange(20.0)[::-1].copy(), np.full(20, 0.5)
    certificate = certify(scores, bound, np.arange(10, 20), max_swaps=3)
    assert certificate.swap_count == 10
    assert [(s.missed, s.returned) for s in certificate.swaps] == [(0, 19), (1, 18), (2, 17)]
    assert [s.gap for s in certificate.swaps] == [19.0, 17.0, 15.0]
    assert {s.bound for s in certificate.swaps} == {1.0}
    assert certify(scores, bound, np.arange(10, 20), max_swaps=0).swaps == ()


@EXAMPLES
@given(st.lists(st.sampled_from(list(Verdict))))
def test_overall_verdict(found: list[Verdict]) -> None:
    """One failure decides, the first one; else the worst; nothing at all decides nothing."""
    total = overall(found)
    failures = [v for v in found if v.failed]
    if failures:
        assert total is failures[0]
    elif found:
        assert total in found
        assert all(list(Verdict).index(v) <= list(Verdict).index(total) for v in found)
    else:
        assert total is Verdict.UNDECIDED
    assert total.exit_code == (1 if failures else 0 if found and all(v.passed for v in found) else 3)

"""Top-k under every rule, against a brute-force sort in Python."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_crosscheck.reference.conventions import CHOICES, Conventions
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select

BASE = PRESETS["sglang-v4-fp8"].conventions
# Few distinct values, so that plateaus and the special values meet at the boundary.
VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.5, -1.0, math.inf, -math.inf, math.nan, -math.nan, 3e38, -3e38])
RULES = st.builds(
    lambda **fields: replace(BASE, **fields),
    **{name: st.sampled_from(CHOICES[name]) for name in ("topk_ties", "topk_order", "topk_padding", "topk_nan")},
)


def brute_force(row: list[float], topk: int, rules: Conventions) -> list[int]:
    """Sort all indices by (NaN rank, score, tie order), keep the best, order and pad them."""

    def rank(index: int) -> tuple[int, float, int]:
        score = row[index]
        tie = -index if rules.topk_ties == "low-index" else index
        if math.isnan(score):
            return (1 if rules.topk_nan == "first" else -1), 0.0, tie
        return 0, score, tie

    best = sorted(range(len(row)), key=rank, reverse=True)[:topk]
    if rules.topk_order != "score":
        best.sort()
    short = topk - len(best)
    padding = {
        "minus-one": [-1] * short,
        "zero": [0] * short,
        "int-max": [2147483647] * short,
        "future": list(range(len(row), len(row) + short)),
    }
    return best + padding[rules.topk_padding]


@settings(max_examples=300)
@given(st.lists(VALUES, max_size=12), st.integers(1, 14), st.integers(0, 4), RULES)
def test_select_is_the_brute_force(row: list[float], topk: int, extra: int, rules: Conventions) -> None:
    """Columns past the length hold what would win, so that reading them shows."""
    scores = np.array([row + [math.inf] * extra])
    got = select(scores, np.array([len(row)]), topk, rules)
    assert got.dtype == np.int32
    assert got.tolist() == [brute_force(row, topk, rules)]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), RULES)
def test_long_rows_with_plateaus(seed: int, rules: Conventions) -> None:
    """Against numpy's lexsort on rows of 700 values, most of them equal to others."""
    rng = np.random.default_rng(seed)
    scores = np.maximum(rng.standard_normal((3, 700)).round(1), 0.0)
    lengths = np.array([700, 350, 100])
    got = select(scores, lengths, 100, rules)
    for row, length in enumerate(lengths):
        index = np.arange(length)
        order = np.lexsort((index if rules.topk_ties == "low-index" else -index, -scores[row, :length]))[:100]
        expected = order if rules.topk_order == "score" else np.sort(order)
        np.testing.assert_array_equal(got[row], expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_float_dtypes(dtype: type) -> None:
    scores: np.ndarray = np.array([[1.0, np.nan, -np.inf, 2.0, np.inf, 0.5]]).astype(dtype)
    rules = replace(BASE, topk_order="score")
    assert select(scores, np.array([6]), 6, rules).tolist() == [[4, 3, 0, 5, 2, 1]]


def test_zeros_of_both_signs_are_equal() -> None:
    scores = np.array([[-0.0, 0.0, -0.0, 0.0]])
    assert select(scores, np.array([4]), 2, BASE).tolist() == [[0, 1]]
    assert select(scores, np.array([4]), 2, replace(BASE, topk_ties="high-index")).tolist() == [[2, 3]]


def test_nan_ranks_beyond_the_infinities_whatever_its_sign() -> None:
    scores = np.array([[np.inf, np.nan, -np.inf, -np.nan, 0.0]])
    rules = replace(BASE, topk_order="score", topk_nan="first")
    assert select(scores, np.array([5]), 5, rules).tolist() == [[1, 3, 0, 4, 2]]
    assert select(scores, np.array([5]), 5, replace(rules, topk_nan="last")).tolist() == [[0, 4, 2, 1, 3]]


def test_any_order_is_written_as_index_order() -> None:
    """``any`` promises nothing to a candidate, so the reference may pick the plainest."""
    scores = np.random.default_rng(0).standard_normal((4, 50))
    lengths = np.full(4, 50)
    by_any, by_index = (select(scores, lengths, 10, replace(BASE, topk_order=o)) for o in ("any", "index"))
    np.testing.assert_array_equal(by_any, by_index)


def test_no_keys_and_no_rows() -> None:
    assert select(np.zeros((2, 0)), np.zeros(2, np.int32), 3, BASE).tolist() == [[-1] * 3] * 2
    assert select(np.zeros((0, 5)), np.zeros(0, np.int32), 3, BASE).shape == (0, 3)


@pytest.mark.parametrize(
    ("lengths", "topk", "message"),
    [
        ([4, 4], 0, r"`select\(topk=\.\.\.\)` should be at least 1, got 0"),
        ([4, 5], 2, r"`select\(lengths=\.\.\.\)` should be in \[0, 4\], got 4 to 5"),
        ([-1, 4], 2, r"`select\(lengths=\.\.\.\)` should be in \[0, 4\], got -1 to 4"),
        ([4], 2, r"`select\(lengths=\.\.\.\)` should be \[2\], one length a row, got \[1\]"),
    ],
)
def test_select_errors(lengths: list[int], topk: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(np.zeros((2, 4)), np.array(lengths), topk, BASE)

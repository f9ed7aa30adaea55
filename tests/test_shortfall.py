"""Exact counts of a wrong selection, and overlaps that chance alone would give."""

from __future__ import annotations

import numpy as np
import pytest

from dsa_crosscheck.compare.chance import chance_note
from dsa_crosscheck.compare.shortfall import shortfall

SCORES = np.array([[1.0, 1.5, -2.0, 0.25, 0.0, -0.0]])


def said(chosen: list[int], expected: list[int], scores: np.ndarray = SCORES) -> str:
    return shortfall([np.array(chosen, int)], [np.array(expected, int)], scores, np.array([scores.shape[1]]), "last")


@pytest.mark.parametrize(
    ("chosen", "expected", "sentence"),
    [
        (
            [1, 3],
            [0, 1],
            "1 selected value is below the k-th largest of the row, by at most 0.75, in 1 of 1 rows; 2 of 6",
        ),
        (
            [2, 3],
            [0, 1],
            "2 selected values are below the k-th largest of the row, by at most 3, in 1 of 1 rows; 2 of 6",
        ),
        (
            [0, 1, 3, 2],
            [0, 1, 3, 4],
            "1 selected value is below the k-th largest of the row, by at most 2, in 1 of 1 rows; 2 of 6",
        ),
    ],
)
def test_values_below_the_kth_are_counted(chosen: list[int], expected: list[int], sentence: str) -> None:
    assert said(chosen, expected) == f"{sentence} values share the k-th's sign and exponent"


@pytest.mark.parametrize(
    ("chosen", "expected"), [([1, 0], [0, 1]), ([0], [0, 1]), ([0, 1, 3, 5], [0, 1, 3, 4]), ([], [])]
)
def test_no_value_below_the_kth(chosen: list[int], expected: list[int]) -> None:
    """Another order, an unfilled place, the other zero, and a row that selects nothing."""
    assert said(chosen, expected) == ""


def test_nan_is_below_every_number_where_it_ranks_last() -> None:
    scores = np.array([[np.nan, 2.0, 1.0]])
    assert said([1, 0], [1, 2], scores).startswith(
        "1 selected value is below the k-th largest of the row, by at most inf"
    )


@pytest.mark.parametrize(
    ("overlap", "length", "topk", "chance"),
    [
        (0.0625, 1024, 64, True),
        (0.12, 1024, 64, True),
        (0.3, 1024, 64, False),  # a wrong RoPE pairing still shares more than chance
        (0.97, 1024, 64, False),
        (0.0, 1024, 64, True),
        (0.75, 64, 48, False),  # unrelated selections share so much that it says nothing
        (0.0, 8, 1, False),  # nor does one key of eight
        (1.0, 32, 64, False),
        (1.0, 0, 64, False),
    ],
)
def test_overlap_at_chance_level(overlap: float, length: int, topk: int, chance: bool) -> None:
    note = chance_note(np.array([overlap, overlap]), np.array([length, length]), topk)
    assert bool(note) == chance
    if chance:
        assert (
            note == f"overlap {overlap:.2f} is chance level (k / n is 0.06): a structural fault, not one of precision"
        )


def test_no_rows_have_no_overlap() -> None:
    assert chance_note(np.array([]), np.array([], int), 8) == ""

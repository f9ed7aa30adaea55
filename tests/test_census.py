"""Counts of ties, zeros and non-numbers, row by row."""

from __future__ import annotations

import candidates
import numpy as np

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.census import count_ties, repeated_keys, tie_census
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions


def test_counts_by_hand() -> None:
    nan, inf = np.nan, np.inf
    scores = np.array(
        [
            [3.0, 1.0, 1.0, 1.0, 0.0, -0.0],
            [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
            [0.0, -0.0, nan, -inf, -nan, 7.0],
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        ],
        np.float32,
    )
    census = count_ties(scores, np.array([6, 6, 6, 2]), 2, "last")
    assert census.at_kth.tolist() == [3, 1, 2, 0]
    assert census.left_out.tolist() == [2, 0, 1, 0]
    assert census.zeros.tolist() == [2, 1, 2, 0]
    assert census.negative_zeros.tolist() == [1, 0, 1, 0]
    assert census.nan.tolist() == [0, 0, 2, 0]
    assert census.minus_infinity.tolist() == [0, 0, 1, 0]
    assert census.sentence.startswith("equal scores at the k-th place decide 2 of 4 rows (up to 3)")


def test_nan_ranks_as_declared() -> None:
    scores = np.array([[np.nan, np.nan, np.nan, 1.0, 0.0]])
    assert count_ties(scores, np.array([5]), 2, "first").left_out.tolist() == [1]
    assert count_ties(scores, np.array([5]), 2, "last").left_out.tolist() == [0]


def test_nothing_to_say() -> None:
    census = count_ties(np.array([[3.0, 2.0, 1.0]]), np.array([3]), 1, "last")
    assert census.sentence == ""
    assert count_ties(np.zeros((0, 4)), np.zeros(0, int), 1, "last").sentence == ""


def test_columns_past_the_length_do_not_count() -> None:
    assert count_ties(np.array([[1.0, 0.0, np.nan]]), np.array([1]), 1, "last").sentence == ""


def test_repeated_keys_are_counted_from_their_bytes() -> None:
    inputs = candidates.case(name="plateau")
    setup = Setup(inputs, FP8, model("ieee-fp32"))
    row = int(setup.trace.lengths.argmax())
    request, length = int(inputs.request_of_row[row]), int(setup.trace.lengths[row])
    mine = (inputs.key_request == request) & (inputs.key_index < length)
    distinct = {record.tobytes() for record in setup.trace.records[mine]}
    assert repeated_keys(setup)[row] == length - len(distinct) > 10


def test_plateau_is_reported() -> None:
    inputs = candidates.case(name="plateau")
    report = crosscheck(inputs, ReferenceCandidate(FP8), preset=FP8, repeat=0)
    census = tie_census(Setup(inputs, FP8, model("ieee-fp32")))
    assert census.zeros.sum() > 100
    assert (census.left_out > 0).any()
    assert f"ties: {census.sentence}" in " ".join(str(report).split())
    record = report.to_dict()["census"]
    assert record["zeros"] == int(census.zeros.sum())
    assert record["rows"]["left_out"] == census.left_out.tolist()

"""The contract of a selection, against a slow and literal reading of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_crosscheck.compare.contract import check_contract
from dsa_crosscheck.reference.conventions import PADDING_VALUES

EXAMPLES = settings(max_examples=200, deadline=None)
TOPK = 4


def obeys(row: list[int], length: int, padding: str) -> bool:
    """Whether a row is min(TOPK, length) distinct visible keys and then padding."""
    due = min(TOPK, length)
    keys, rest = row[:due], row[due:]
    value = PADDING_VALUES[padding]
    padded = all(i >= length for i in rest) if value is None else all(i == value for i in rest)
    return len(set(keys)) == due and all(0 <= i < length for i in keys) and padded


INDEX = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 4, 5, 6, 2**31 - 1])


@EXAMPLES
@given(
    rows=st.lists(st.tuples(st.lists(INDEX, min_size=TOPK, max_size=TOPK), st.integers(0, 7)), max_size=3),
    padding=st.sampled_from(sorted(PADDING_VALUES)),
)
def test_faults_are_found_exactly_where_there_are_any(rows: list[tuple[list[int], int]], padding: str) -> None:
    selection = np.array([row for row, _ in rows], np.int32).reshape(-1, TOPK)
    lengths = np.array([length for _, length in rows], np.int32)
    check = check_contract(selection, lengths, TOPK, padding)
    assert (not check.faults) == all(obeys(row, length, padding) for row, length in rows)
    for chosen, (row, length) in zip(check.chosen, rows, strict=True):
        assert chosen.tolist() == [i for i in row[: min(TOPK, length)] if 0 <= i < length]


@EXAMPLES
@given(length=st.integers(0, 7), order=st.permutations(range(7)), padding=st.sampled_from(sorted(PADDING_VALUES)))
def test_a_right_row_has_no_fault_in_any_order(length: int, order: list[int], padding: str) -> None:
    keys = [i for i in order if i < length][:TOPK]
    value = PADDING_VALUES[padding]
    rest = [length + i if value is None else value for i in range(TOPK - len(keys))]
    check = check_contract(np.array([keys + rest], np.int32), np.array([length], np.int32), TOPK, padding)
    assert check.faults == ()
    assert check.chosen[0].tolist() == keys


@pytest.mark.parametrize(
    ("row", "length", "message"),
    [
        ([0, 1, -1, 2], 9, "1 of 4 slots hold no visible key in row 1"),
        ([0, 1, 9, 10], 9, "2 of 4 slots hold no visible key in row 1"),
        ([0, 5, 5, 5], 9, "2 of 4 slots repeat a key in row 1"),
        ([0, 1, 0, 0], 2, "2 slots after the last key of row 1 are not minus-one padding"),
        ([0, -1, 1, -1], 2, "1 of 2 slots hold no visible key in row 1"),
    ],
)
def test_faults_name_the_row_and_the_count(row: list[int], length: int, message: str) -> None:
    selection = np.array([[0, -1, -1, -1], row], np.int32)
    check = check_contract(selection, np.array([1, length], np.int32), TOPK, "minus-one")
    assert check.faults[0] == message


def test_several_rows_are_counted_and_the_worst_is_named() -> None:
    selection = np.array([[0, -1, 2, 3], [-1, -1, 2, 3], [0, 1, 2, 3], [7, 7, 2, 3]], np.int32)
    check = check_contract(selection, np.full(4, 9, np.int32), TOPK, "minus-one")
    assert check.faults == (
        "2 of 4 slots hold no visible key in row 1 (and 1 more rows)",
        "1 of 4 slots repeat a key in row 3",
    )

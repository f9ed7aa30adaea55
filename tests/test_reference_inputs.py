"""What ``Inputs`` refuses, by its messages."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import small_cases

from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace, exact_scores

GOOD = small_cases.mixed()
ARRAYS = [f.name for f in fields(Inputs) if f.metadata]


def refuse(message: str, **changes: object) -> None:
    with pytest.raises(ValueError, match=message):
        replace(GOOD, **changes)  # type: ignore[arg-type]


def edited(name: str, at: object, value: float) -> np.ndarray:
    """A copy of a good array with one element changed."""
    array = getattr(GOOD, name).copy()
    array[at] = value
    return array


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_dtype(name: str) -> None:
    array = getattr(GOOD, name)
    wrong = array.astype(np.float64 if array.dtype.kind == "f" else np.int16)
    refuse(rf"`Inputs\({name}=\.\.\.\)` should be a numpy {array.dtype} array .*, got {wrong.dtype} ", **{name: wrong})


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_rank_and_type(name: str) -> None:
    array = getattr(GOOD, name)
    refuse(rf"`Inputs\({name}=\.\.\.\)` should be a numpy {array.dtype} array ", **{name: array[None]})
    refuse(rf"`Inputs\({name}=\.\.\.\)` should be a numpy .* array .*, got list", **{name: array.tolist()})


@pytest.mark.parametrize(
    ("name", "axis", "said"),
    [
        ("pooled", 1, "head_dim = 128"),
        ("norm_weight", 0, "head_dim = 128"),
        ("norm_bias", 0, "head_dim = 128"),
        ("rope_table", 1, "rope_dim = 64"),
        ("key_index", 0, "keys = 13"),
        ("key_request", 0, "keys = 13"),
        ("slots", 0, "keys = 13"),
        ("query", 1, "heads = 4"),
        ("query", 2, "head_dim = 128"),
        ("gate", 0, "rows = 6"),
        ("gate", 1, "heads = 4"),
        ("query_positions", 0, "rows = 6"),
        ("request_of_row", 0, "rows = 6"),
        ("key_counts", 0, "requests = 3"),
        ("kv_score", 1, r"4\*head_dim = 512"),
        ("position_bias", 0, "ratio = 4"),
        ("position_bias", 1, r"2\*head_dim = 256"),
    ],
)
def test_wrong_length(name: str, axis: int, said: str) -> None:
    shorter = np.delete(getattr(GOOD, name), 0, axis=axis)
    refuse(rf"`Inputs\({name}=\.\.\.\)` should have {said}, got shape ", **{name: shorter})


@pytest.mark.parametrize("name", [n for n in ARRAYS if getattr(GOOD, n).dtype.kind == "f"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(name: str, value: float) -> None:
    at = (1,) * getattr(GOOD, name).ndim
    shown = r"\(" + ", ".join("1" for _ in at) + (r",\)" if len(at) == 1 else r"\)")
    refuse(rf"`Inputs\({name}=\.\.\.\)` should be finite, got {value} at {shown}", **{name: edited(name, at, value)})


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        ("key_request", 3, r"in \[0, 3\)"),
        ("key_request", -1, r"in \[0, 3\)"),
        ("request_of_row", 3, r"in \[0, 3\)"),
        ("request_of_row", -1, r"in \[0, 3\)"),
        ("slots", 24, "below 24"),
        ("query_positions", 40, r"in \[0, 40\)"),
        ("query_positions", -1, r"in \[0, 40\)"),
        ("key_index", -1, "at least 0"),
        ("key_counts", 13, r"in \[0, 13\)"),
        ("key_counts", -1, r"in \[0, 13\)"),
    ],
)
def test_out_of_range(name: str, value: int, bounds: str) -> None:
    refuse(rf"`Inputs\({name}=\.\.\.\)` should be {bounds}, got {value} at \(1,\)", **{name: edited(name, 1, value)})


@pytest.mark.parametrize("page", [6, -2])
def test_page_out_of_range(page: int) -> None:
    message = rf"`Inputs\(block_table=\.\.\.\)` should be in \[-1, 6\), got {page} at \(0, 1\)"
    refuse(message, block_table=edited("block_table", (0, 1), page))


def test_key_past_the_rope_table() -> None:
    refuse(r"last raw position of key_index.* in \[0, 40\), got 43 at \(1,\)", key_index=edited("key_index", 1, 10))


def test_slot_used_twice() -> None:
    refuse(r"`Inputs\(slots=\.\.\.\)` should name each slot once", slots=edited("slots", 1, GOOD.slots[0]))


def test_slot_off_the_block_table() -> None:
    free = int(np.setdiff1d(np.arange(24), GOOD.slots)[0])
    message = rf"should follow the block table: key 1 belongs at slot {GOOD.slots[1]}, got {free}"
    refuse(message, slots=edited("slots", 1, free))


def test_slot_of_an_unset_page() -> None:
    message = r"should follow the block table: key 0 has no page there, got 12"
    refuse(message, block_table=edited("block_table", (0, 0), -1))


def test_key_past_the_block_table_does_not_borrow_the_last_page() -> None:
    """Key 8 is the last page's first; an index one page further must not pass as its like."""
    narrow = GOOD.block_table[:, :2].copy()
    counts = np.array([8, 4, 0])
    message = r"should follow the block table: key 8 has no page there, got 16"
    refuse(message, block_table=narrow, key_counts=counts)
    slots = edited("slots", 8, -1)
    assert replace(GOOD, block_table=narrow, key_counts=counts, slots=slots).slots[8] == -1
    # Its place in the last page that the table does have is free, and still not its own.
    slots[8], slots[4] = slots[4], -1
    refuse(r"key 8 has no page there", block_table=narrow, key_counts=counts, slots=slots)


def test_stretch_needs_both_arrays() -> None:
    refuse(r"`Inputs\(kv_score=\.\.\., position_bias=\.\.\.\)`: give both or neither", kv_score=None)
    refuse(r"give both or neither", position_bias=None)


@pytest.mark.parametrize("pages", [-1, 2.0])
def test_pages(pages: object) -> None:
    refuse(rf"`Inputs\(pages=\.\.\.\)` should be a non-negative integer, got {pages!r}", pages=pages)


def test_sizes() -> None:
    assert (GOOD.rows, GOOD.keys) == (6, 13)


def test_lengths_are_visible_and_stored() -> None:
    assert row_lengths(GOOD, "finished-groups").tolist() == [9, 5, 0, 4, 3, 0]
    assert row_lengths(GOOD, "own-group").tolist() == [9, 6, 1, 4, 4, 0]
    assert row_lengths(GOOD, "own-group").dtype == np.int32


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_at_all(name: str) -> None:
    """No keys, no rows and no pages go through every stage."""
    conventions = PRESETS[name].conventions
    empty = replace(
        GOOD,
        pages=0,
        pooled=GOOD.pooled[:0],
        key_index=GOOD.key_index[:0],
        key_request=GOOD.key_request[:0],
        slots=GOOD.slots[:0],
        query=GOOD.query[:0],
        gate=GOOD.gate[:0],
        query_positions=GOOD.query_positions[:0],
        request_of_row=GOOD.request_of_row[:0],
        block_table=np.zeros((1, 0), np.int32),
        key_counts=np.zeros(1, np.int64),
    )
    trace = Trace(empty, conventions)
    assert trace.records.shape == (0, conventions.key.record_bytes(128))
    assert trace.cache.shape[0] == 0
    assert trace.scores.values.shape == (0, 0)
    assert trace.selection.shape == (0, 3)
    assert exact_scores(empty, conventions).values.shape == (0, 0)


def test_skipped_keys_leave_no_bytes() -> None:
    conventions = PRESETS["sglang-v4-fp8"].conventions
    skipped = replace(GOOD, slots=np.full(13, -1))
    assert not Trace(skipped, conventions).cache.any()

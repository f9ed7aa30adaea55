"""Keys of other requests, keys not yet visible, unreachable pages; and inputs that tell nothing apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from candidates import FP8, Altered, case, right
from small_cases import build

from dsa_crosscheck.compare import Report, Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import FusedReference
from dsa_crosscheck.compare.foreign_keys import foreign_keys
from dsa_crosscheck.compare.indistinct import indistinct
from dsa_crosscheck.compare.physical import NOBODY, UNREACHABLE, Located, to_logical
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace

SMALL = partial(case, context=1031, rows=8, topk=32)
CONVENTIONS = PRESETS[FP8].conventions
PADDING = "minus-one"


def nine_and_four() -> Inputs:
    """Requests of 9, 4 and 0 keys on pages of 4; rows see 9, 5, 0 of the first, 4 and 3 of the second, 0."""
    rng = np.random.default_rng(5)
    return build(rng.standard_normal((13, 128)), rng.standard_normal((6, 4, 128)), rng)


def setup_of(inputs: Inputs) -> Setup:
    return Setup(inputs, CONVENTIONS, model("ieee-fp32"))


def first_keys(inputs: Inputs) -> np.ndarray:
    """A legal selection of 3: the lowest visible keys, then -1."""
    lengths = setup_of(inputs).trace.lengths
    slot = np.arange(3)[None, :]
    return np.where(slot < lengths[:, None], slot, -1)


@pytest.mark.parametrize(
    ("row", "keys", "sentences"),
    [
        (3, [5, 1, 8], ("request 1 selected keys of request 0: 2 slots in 1 row",)),
        (
            1,
            [0, 6, 7],
            (
                "2 slots hold keys beyond the row's causal length: row 1 at position 20 selected key 6 and sees 5"
                "; key 6 depends on tokens 24 to 27: not causal",
            ),
        ),
        (
            4,
            [3, 0, 1],
            (
                "1 slots hold keys beyond the row's causal length: row 4 at position 13 selected key 3 and sees 3"
                "; key 3 depends on tokens 14 to 15: not causal",
            ),
        ),
        (0, [9, 100, -1], ()),
        (
            2,
            [-1, -1, 4],
            (
                "1 slots hold keys beyond the row's causal length: row 2 at position 2 selected key 4 and sees 0"
                "; key 4 depends on tokens 16 to 19: not causal",
            ),
        ),
        (5, [4, 4, 4], ()),
        (0, [8, 1, 2], ()),
    ],
)
def test_logical_keys_of_others_are_told_from_hidden_ones(
    row: int, keys: list[int], sentences: tuple[str, ...]
) -> None:
    """Only slots due count; an index that no request has is the contract's own business."""
    inputs = nine_and_four()
    selection = first_keys(inputs)
    selection[row] = keys
    assert foreign_keys(Located(selection), setup_of(inputs).trace.lengths, inputs, PADDING) == sentences


def test_counts_are_per_request() -> None:
    inputs = nine_and_four()
    selection = first_keys(inputs)
    selection[3:5] = [[4, 5, 6], [4, 5, 0]]
    found = foreign_keys(Located(selection), setup_of(inputs).trace.lengths, inputs, PADDING)
    assert found == ("request 1 selected keys of request 0: 5 slots in 2 rows",)


def physical(inputs: Inputs) -> np.ndarray:
    """``first_keys`` as slots; pages are [3, 0, 4] and [1]."""
    keys, table = first_keys(inputs), inputs.block_table[inputs.request_of_row]
    page = np.take_along_axis(table, np.maximum(keys, 0) // 4, axis=1)
    return np.where(keys >= 0, page * 4 + keys % 4, -1)


def test_physical_slots_come_back_as_the_keys_they_hold() -> None:
    inputs = nine_and_four()
    index, owner = to_logical(physical(inputs), setup_of(inputs))
    assert np.array_equal(index, first_keys(inputs))
    assert (owner == NOBODY).all()


@pytest.mark.parametrize(
    ("slot", "index", "owner", "sentence"),
    [
        (3 * 4 + 1, UNREACHABLE, 0, "request 1 selected keys of request 0: 1 slots in 1 row"),
        (2 * 4, UNREACHABLE, NOBODY, "1 slots lie on unreachable pages, first in row 3"),
        (4 * 4 + 3, UNREACHABLE, NOBODY, "1 slots lie on unreachable pages, first in row 3"),
        (99 * 4, UNREACHABLE, NOBODY, "1 slots lie on unreachable pages, first in row 3"),
        (-1, -1, NOBODY, None),
        (1 * 4 + 3, 3, NOBODY, None),
    ],
)
def test_physical_slots_of_others(slot: int, index: int, owner: int, sentence: str | None) -> None:
    """Slot 19 is on request 0's last page, behind its last key: nobody's."""
    inputs = nine_and_four()
    selection = physical(inputs)
    selection[3, 0] = slot
    located = Located(*to_logical(selection, setup_of(inputs)))
    assert located.owner is not None
    assert (located.index[3, 0], located.owner[3, 0]) == (index, owner)
    found = foreign_keys(located, setup_of(inputs).trace.lengths, inputs, PADDING)
    assert found == (() if sentence is None else (sentence,))


class Physical(FusedReference):
    """The fused reference, returning slots; ``change(inputs, slots)`` spoils them."""

    returns = "physical"

    def __init__(self, change: Callable[[Inputs, np.ndarray], None] = lambda inputs, slots: None) -> None:
        super().__init__(CONVENTIONS)
        self._change = change

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        keys, size = Trace(inputs, self.conventions).selection, inputs.geometry.page_size
        table = inputs.block_table[inputs.request_of_row]
        page = np.take_along_axis(table, np.maximum(keys, 0) // size, axis=1)
        slots = np.where(keys >= 0, page * size + keys % size, -1)
        self._change(inputs, slots)
        return {"selection": torch.from_numpy(slots)}


def judge(candidate: object, inputs: Inputs | None = None, repeat: int = 0) -> Report:
    return crosscheck(inputs or SMALL(), candidate, repeat=repeat, explain=False)


def test_a_right_candidate_may_return_slots() -> None:
    inputs = SMALL()
    report = judge(Physical(), inputs, repeat=2)
    assert report.verdict is Verdict.IDENTICAL
    assert report.selection is not None
    assert report.selection.overlap_min == 1.0
    assert {r.stage for r in report.stages} >= {"repeat: set", "batch invariance"}


def test_keys_of_another_request_are_malformed_by_name() -> None:
    """The first page of the batch's table for everybody: right for request 0, and a leak for the rest."""

    def leak(inputs: Inputs, slots: np.ndarray) -> None:
        size = inputs.geometry.page_size
        row = int(np.flatnonzero(inputs.request_of_row == 1)[0])
        slots[row, :3] = inputs.block_table[0, 0] * size + np.arange(3)

    report = judge(Physical(leak))
    line = report.stages[-1]
    assert (report.verdict, line.stage) == (Verdict.MALFORMED, "end to end")
    assert "request 1 selected keys of request 0: 3 slots in 1 row" in line.note


def test_ragged_window_start_ignored_is_a_leak() -> None:
    """Logical indices as if both requests' keys lay in one row, counted from column 0."""

    inputs = SMALL()
    request = int(np.flatnonzero(inputs.key_counts == 65)[0])
    lengths = setup_of(inputs).trace.lengths
    row = int(np.flatnonzero(inputs.request_of_row == request)[0])

    def leak(base: object, scores: torch.Tensor, n: torch.Tensor, topk: int) -> torch.Tensor:
        chosen = right().select(scores, n, topk)
        chosen[row] += int(lengths[row])
        return chosen

    report = judge(Altered(right(), select=leak), inputs)
    assert (report.verdict, report.first_fault) == (Verdict.MALFORMED, "selection")
    line = next(r for r in report.stages if r.stage == "selection")
    assert f"request {request} selected keys of request 0: 32 slots in 1 row" in line.note


def test_own_unfinished_group_is_beyond_the_causal_length() -> None:
    inputs = SMALL()
    row, positions = int(inputs.query_positions.argmax()), inputs.query_positions.copy()
    positions[row] = 20
    inputs = replace(inputs, query_positions=positions)
    candidate = FusedReference(CONVENTIONS.with_field("causal", "own-group"))
    report = crosscheck(inputs, candidate, preset=CONVENTIONS, repeat=0, explain=False)
    assert report.verdict is Verdict.MALFORMED
    sentence = f"1 slots hold keys beyond the row's causal length: row {row} at position 20 selected key 5 and sees 5"
    assert sentence in report.stages[-1].note


def test_padding_with_future_keys_is_not_a_leak() -> None:
    inputs = nine_and_four()
    selection = first_keys(inputs)
    selection[2] = [0, 1, 2]
    lengths = setup_of(inputs).trace.lengths
    assert foreign_keys(Located(selection), lengths, inputs, "future") == ()
    assert len(foreign_keys(Located(selection), lengths, inputs, "minus-one")) == 1


def test_unknown_kind_of_index_is_a_usage_error() -> None:
    candidate = Physical()
    candidate.returns = "virtual"
    with pytest.raises(ValueError, match=r"`returns` should be one of .*, got 'virtual'"):
        judge(candidate)


# Inputs that could not have shown a mix-up.


def same_rows(inputs: Inputs) -> Inputs:
    """Every row asks the same at the same place; requests differ."""
    rows = np.flatnonzero(inputs.request_of_row == 0)[:1].repeat(inputs.rows)
    names = ("query", "gate", "query_positions", "request_of_row")
    return replace(inputs, **{name: getattr(inputs, name)[rows] for name in names})


def same_keys(inputs: Inputs) -> Inputs:
    """Every key the same number, and no rotation by position."""
    flat = np.tile(np.float32([1.0, 0.0]), (inputs.rope_table.shape[0], inputs.rope_table.shape[1] // 2))
    return replace(inputs, pooled=np.repeat(inputs.pooled[:1], inputs.keys, axis=0), rope_table=flat)


def test_equal_rows_are_vacuous() -> None:
    report = judge(right(), same_rows(SMALL()))
    assert (report.verdict, report.first_fault) == (Verdict.VACUOUS, None)
    assert report.stages[-1].note == "the inputs cannot tell rows apart: every query is the same"


def test_equal_rows_do_not_hide_a_fault() -> None:
    wrong = Altered(right(), score=lambda base, *args: -base.score(*args))
    assert judge(wrong, same_rows(SMALL())).verdict.failed


def test_equal_keys_are_vacuous() -> None:
    setup = setup_of(same_keys(SMALL()))
    assert indistinct(setup) == "the inputs cannot tell keys apart: every visible key is the same"
    assert judge(right(), same_keys(SMALL())).verdict is Verdict.VACUOUS


@pytest.mark.parametrize("what", ["query", "gate"])
def test_one_row_that_differs_is_enough(what: str) -> None:
    inputs = same_rows(SMALL())
    array = getattr(inputs, what).copy()
    array[3] *= np.float32(-1.0)
    assert indistinct(setup_of(replace(inputs, **{what: array}))) == ""


def test_one_row_alone_is_not_vacuous() -> None:
    inputs = SMALL()
    longest = int(inputs.query_positions.argmax())
    names = ("query", "gate", "query_positions", "request_of_row")
    alone = replace(inputs, **{name: getattr(inputs, name)[longest : longest + 1] for name in names})
    assert indistinct(setup_of(alone)) == ""
    assert judge(right(), alone).verdict.passed

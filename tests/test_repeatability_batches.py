"""A row's result does not depend on its batch: reordered rows and requests, chunks, and rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from candidates import FP8, Altered, case, right

from dsa_crosscheck.compare import Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.repeatability.batches import arrangements, by_position, chunk_of, renamed
from dsa_crosscheck.compare.repeatability.budget import Budget
from dsa_crosscheck.compare.repeatability.invariance import check_invariance
from dsa_crosscheck.compare.repeatability.targets import first_results
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace

SMALL = partial(case, context=1031, rows=8, topk=32)
CONVENTIONS = PRESETS[FP8].conventions
Tensor = torch.Tensor


def invariance(candidate: Any, methods: tuple[str, ...], inputs: Inputs | None = None) -> Any:
    """The line ``batch invariance`` of some methods of a candidate."""
    setup = Setup(inputs or SMALL(), CONVENTIONS, model("ieee-fp32"))
    outputs = {method: CHECKS[method].run(candidate, setup) for method in methods if method in CHECKS}
    return check_invariance(candidate, setup, first_results(candidate, setup, outputs))


@pytest.fixture(autouse=True)
def _enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every arrangement is tried, however busy the machine."""
    monkeypatch.setattr(Budget, "open", True)


@pytest.mark.parametrize("candidate", [load("emulated", None), ReferenceCandidate(None)], ids=lambda c: c.name)
def test_kernels_and_reference_give_the_same_bits(candidate: Any) -> None:
    line = invariance(candidate, ("score", "select"))
    assert (line.verdict, line.differing, line.note) == (Verdict.IDENTICAL, 0, "")
    lengths = Setup(SMALL(), CONVENTIONS, model("ieee-fp32")).trace.lengths
    # Scores in five arrangements, selections in the four that leave requests alone.
    assert line.elements == 5 * int(lengths.sum()) + 4 * 8 * 32


def test_torch_path_agrees_within_the_bound() -> None:
    assert invariance(right(), ("score", "select")).verdict.passed


def test_fused_reference_agrees() -> None:
    inputs = case(context=515, rows=5, topk=16)
    assert invariance(FusedReference(None), (), inputs).verdict is Verdict.IDENTICAL


# Faults, each right for the whole batch.


def only(applies: Callable[[tuple[Tensor, ...]], bool], change: Callable[[Tensor], Tensor]) -> Altered:
    """Scores through ``change`` when ``applies(arguments)``."""

    def score(base: Any, *args: Tensor) -> Tensor:
        scores = base.score(*args)
        return change(scores) if applies(args) else scores

    return Altered(right(), score=score)


def neighbour(scores: Tensor) -> Tensor:
    """Every row gets the scores of the row before."""
    return scores.roll(1, dims=0)


def whole_request_first(args: tuple[Tensor, ...]) -> bool:
    """Whether the longest row belongs to the request that the table lists first."""
    return int(args[4][int(args[5].argmax())]) != 0


ROWS = 8


@pytest.mark.parametrize(
    ("candidate", "name"),
    [
        (only(lambda args: len(args[0]) == 3, neighbour), "chunks of 3"),
        (only(lambda args: len(args[0]) == 4, neighbour), "chunks of 4"),
        (only(lambda args: len(args[0]) == 1, lambda scores: scores * 1.01), "rows alone"),
        (only(whole_request_first, lambda scores: scores * 0.5), "requests reversed"),
        (
            only(lambda args: len(args[0]) == ROWS and int(args[5][0]) != int(FIRST_LENGTH), neighbour),
            "rows reversed",
        ),
        (only(lambda args: len(args[0]) < ROWS, lambda scores: scores + torch.nan), "chunks of 4"),
    ]
    if (FIRST_LENGTH := int(Trace(SMALL(), CONVENTIONS).lengths[0])) >= 0
    else [],
)
def test_batch_dependent_scores_are_a_violation(candidate: Any, name: str) -> None:
    line = invariance(candidate, ("score",))
    assert line.verdict is Verdict.VIOLATION
    assert line.differing > 0
    assert f"scores depend on the batch ({name}): " in line.note
    assert line.at.startswith("row ")


def test_last_bits_may_follow_the_batch() -> None:
    """Another order of summation for small batches is admissible arithmetic, and is reported."""
    candidate = only(lambda args: len(args[0]) == 1, lambda scores: scores * (1 + 2**-23))
    line = invariance(candidate, ("score",))
    assert line.verdict is Verdict.WITHIN_BOUND
    assert line.differing > 0


def test_first_place_is_a_failing_one() -> None:
    """The note keeps what failed, not the admissible difference that came before it."""

    def change(scores: Tensor) -> Tensor:
        return scores * 1.5 if scores.shape[0] == 1 else scores * (1 + 2**-23)

    line = invariance(only(lambda args: len(args[0]) < ROWS, change), ("score",))
    assert line.verdict is Verdict.VIOLATION
    assert "(rows alone)" in line.note


def other_keys(rows: int, ties: bool) -> Altered:
    """In batches of ``rows`` the last key of the longest row gives way: to a tied key, or to the worst."""

    def select(base: Any, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        chosen = base.select(scores, lengths, topk)
        row = int(lengths.argmax())
        if len(lengths) != rows or int(lengths[row]) <= topk:
            return chosen
        seen = scores[row, : lengths[row]]
        out = torch.tensor(sorted(set(range(len(seen))) - set(chosen[row].tolist())))
        worst = int(chosen[row][seen[chosen[row].long()].argmin()])
        into = out[seen[out] == seen[worst]] if ties else out[seen[out].argmin()].reshape(1)
        if len(into):
            chosen[row, chosen[row] == worst] = int(into[-1])
        return chosen

    return Altered(right(), select=select)


def test_another_set_in_another_batch_is_a_violation() -> None:
    line = invariance(other_keys(1, ties=False), ("select",))
    assert line.verdict is Verdict.VIOLATION
    assert "selected keys depend on the batch (rows alone): row " in line.note


def test_other_keys_of_equal_score_are_a_tie() -> None:
    line = invariance(other_keys(1, ties=True), ("select",), case(FP8, "plateau", context=1031, rows=8, topk=32))
    assert line.verdict is Verdict.TIE
    assert line.differing > 0


def test_an_empty_slot_in_another_batch_is_a_violation() -> None:
    def select(base: Any, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        chosen = base.select(scores, lengths, topk)
        if len(lengths) == 3:
            chosen[int(lengths.argmax()), 0] = -1
        return chosen

    assert invariance(Altered(right(), select=select), ("select",)).verdict is Verdict.VIOLATION


def test_a_batch_that_raises_fails() -> None:
    def score(base: Any, *args: Tensor) -> Tensor:
        if len(args[0]) == 1:
            raise RuntimeError("one row is too few")
        return base.score(*args)

    line = invariance(Altered(right(), score=score), ("score",))
    assert line.verdict is Verdict.MALFORMED
    assert "score raised RuntimeError: one row is too few" in line.note


def test_a_selection_that_depends_on_where_its_chunk_ends_is_found() -> None:
    """Rows that see their own unfinished group: the key is there in the whole batch, and not in a chunk."""
    inputs = case(context=515, rows=5, topk=16)
    row, positions = int(inputs.query_positions.argmax()), inputs.query_positions.copy()
    positions[row] = 20
    inputs = replace(inputs, query_positions=positions)
    line = invariance(FusedReference(CONVENTIONS.with_field("causal", "own-group")), (), inputs)
    assert line.verdict is Verdict.VIOLATION
    assert line.note.startswith("results of run depend on the batch (")
    assert f"): row {row} selects [] for [5]" in line.note
    assert "reversed" not in line.note


def test_crosscheck_fails_at_the_line() -> None:
    candidate = only(lambda args: len(args[0]) == 3, neighbour)
    report = crosscheck(SMALL(), candidate, repeat=1, explain=False)
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, "batch invariance")
    assert "FIRST FAULT: batch invariance at row" in str(report)


# The arrangements themselves.


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 13])
def test_arrangements_hold_every_row_once_and_repeat_no_batch(rows: int) -> None:
    found = list(arrangements(rows, 3))
    for arrangement in found:
        assert sorted(np.concatenate(arrangement.parts).tolist()) == list(range(rows))
        whole = len(arrangement.parts) == 1 and np.array_equal(arrangement.parts[0], np.arange(rows))
        assert not whole or arrangement.requests is not None
    sizes = {a.name: max(map(len, a.parts)) for a in found if len(a.parts) > 1}
    wanted = {"chunks of 4": 4, "chunks of 3": 3, "rows alone": 1}
    assert sizes == {name: size for name, size in wanted.items() if size < rows}


def test_a_single_request_is_not_reordered() -> None:
    assert "requests reversed" not in {a.name for a in arrangements(6, 1)}


def test_parts_of_prefill_have_only_the_keys_that_exist_then() -> None:
    inputs = SMALL()
    order = by_position(inputs)
    assert (np.diff(inputs.request_of_row[order]) >= 0).all()
    for rows in np.array_split(order, 3):
        part = chunk_of(inputs, rows, "finished-groups")
        lengths = Trace(inputs, CONVENTIONS).lengths[rows]
        assert np.array_equal(Trace(part, CONVENTIONS).lengths, lengths)
        assert int(part.key_counts.sum()) == part.keys
        assert (part.key_counts[part.request_of_row] >= lengths).all()


def test_renamed_requests_are_the_same_batch() -> None:
    inputs = SMALL()
    other = renamed(inputs, np.arange(inputs.key_counts.size)[::-1])
    assert (np.diff(other.key_request) >= 0).all()
    assert not np.array_equal(other.block_table, inputs.block_table)
    first, second = Trace(inputs, CONVENTIONS), Trace(other, CONVENTIONS)
    assert np.array_equal(first.cache, second.cache)
    assert np.array_equal(first.selection, second.selection)

"""Repeats: bytes of scores, sets and orders of keys as three answers, and what each of them costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from candidates import Altered, case, right

from dsa_crosscheck.compare import Report, Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.repeatability.budget import Budget
from dsa_crosscheck.reference.inputs import Inputs

REPEATS = 20
SMALL = partial(case, context=1031, rows=8, topk=32)
AFTERWARDS = {"poison", "guard", "batch invariance"}


def lines(report: Report) -> dict[str, Any]:
    """The lines of a report by name."""
    return {result.stage: result for result in report.stages}


def check(candidate: Any, inputs: Inputs | None = None, repeat: int = REPEATS) -> Report:
    """A cross-check without a search for reasons."""
    return crosscheck(inputs or SMALL(), candidate, repeat=repeat, explain=False)


def sometimes(method: str, change: Callable[[torch.Tensor], None], calls: set[int]) -> Altered:
    """The right candidate, but ``change`` is done to the result of those calls of ``method`` (from 1)."""
    count = iter(range(1, 10**6))

    def altered(base: Any, *args: Any) -> torch.Tensor:
        result = getattr(base, method)(*args)
        if next(count) in calls:
            change(result)
        return result

    return Altered(right(), **{method: altered})


def lose_a_score(scores: torch.Tensor) -> None:
    scores[2, 1] = 0.0


def lose_a_key(chosen: torch.Tensor) -> None:
    row = int((chosen >= 0).sum(dim=1).argmax())
    free = (set(range(int(chosen[row].max()) + 1)) - set(chosen[row].tolist())).pop()
    chosen[row, 0] = free


def turn_round(chosen: torch.Tensor) -> None:
    row = int((chosen >= 0).sum(dim=1).argmax())
    chosen[row] = chosen[row].flip(0)


@pytest.mark.parametrize("candidate", [load("emulated", None), right(), ReferenceCandidate(None)], ids=lambda c: c.name)
def test_right_candidates_repeat_themselves(candidate: Any) -> None:
    report = check(candidate)
    assert report.verdict.passed
    found = lines(report)
    for name in ("repeat: scores", "repeat: set", "repeat: order"):
        assert (found[name].verdict, found[name].elements, found[name].differing) == (Verdict.IDENTICAL, REPEATS, 0)
    assert set(found) >= AFTERWARDS


@pytest.mark.parametrize("call", [2, 9, REPEATS + 1])
def test_a_race_in_one_call_of_twenty_is_refused(call: int) -> None:
    inputs = SMALL()
    # The end-to-end chain scores once between the stage and the repeats.
    report = check(sometimes("score", lose_a_score, {call + 1}), inputs)
    line = lines(report)["repeat: scores"]
    assert (report.verdict, report.verdict.exit_code, report.first_fault) == (Verdict.REFUSED, 3, None)
    assert (line.verdict, line.elements, line.differing) == (Verdict.REFUSED, REPEATS, 1)
    right_score = right().score(*_scorer_arguments(inputs))[2, 1].numpy()
    assert f"not reproducible: 1 of 20 repeats differ, first at (2,1), values {right_score!s} vs 0.0" in line.note
    assert "at most 1 of " in line.note
    assert "not reproducible" in str(report)
    assert not AFTERWARDS & set(lines(report))


def test_seeded_race_counts_every_repeat_that_differs() -> None:
    calls = {int(n) for n in np.flatnonzero(np.random.default_rng(3).random(60) < 0.1) if n > 2}
    expected = len(calls & set(range(3, REPEATS + 3)))
    assert expected > 1
    line = lines(check(sometimes("score", lose_a_score, calls)))["repeat: scores"]
    assert (line.verdict, line.differing) == (Verdict.REFUSED, expected)


def test_scores_past_a_length_may_be_anything() -> None:
    def noise_past_lengths(base: Any, *args: torch.Tensor) -> torch.Tensor:
        scores, lengths = base.score(*args), args[-1]
        past = torch.arange(scores.shape[1]) >= lengths.unsqueeze(1)
        return torch.where(past, torch.rand(scores.shape), scores)

    assert check(Altered(right(), score=noise_past_lengths)).verdict.passed


def test_a_changing_set_is_refused_and_named() -> None:
    report = check(sometimes("select", lose_a_key, {5}))
    line = lines(report)["repeat: set"]
    assert (report.verdict, line.verdict, line.differing) == (Verdict.REFUSED, Verdict.REFUSED, 1)
    assert "1 of 20 repeats differ, first at row" in line.note
    assert lines(report)["repeat: order"].verdict is Verdict.IDENTICAL
    assert lines(report)["repeat: scores"].verdict is Verdict.IDENTICAL


def test_another_order_is_reported_and_not_refused() -> None:
    report = check(sometimes("select", turn_round, set(range(4, 12))))
    assert report.verdict.passed
    assert lines(report)["repeat: set"].verdict is Verdict.IDENTICAL
    line = lines(report)["repeat: order"]
    assert (line.verdict, line.differing) == (Verdict.WITHIN_BOUND, 8)
    assert "the same keys in another order, none is declared" in line.note
    assert set(lines(report)) >= AFTERWARDS


def test_another_order_is_refused_where_one_is_declared() -> None:
    candidate = sometimes("select", turn_round, {6})
    candidate.conventions = candidate.conventions.with_field("topk_order", "index")
    report = check(candidate)
    line = lines(report)["repeat: order"]
    assert (report.verdict, line.verdict) == (Verdict.REFUSED, Verdict.REFUSED)
    assert lines(report)["repeat: set"].verdict is Verdict.IDENTICAL


def test_a_fault_outweighs_a_race() -> None:
    def wrong_and_racing(base: Any, *args: torch.Tensor) -> torch.Tensor:
        return base.score(*args) + torch.rand(1)

    report = check(Altered(right(), score=wrong_and_racing))
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, "scores")
    assert lines(report)["repeat: scores"].verdict is Verdict.REFUSED


def test_a_repeat_that_raises_fails() -> None:
    def explode(scores: torch.Tensor) -> None:
        raise RuntimeError("out of shared memory")

    report = check(sometimes("score", explode, {7}))
    assert (report.verdict, report.first_fault) == (Verdict.MALFORMED, "repeat: calls")
    assert "repeat 5 of 20: score raised RuntimeError: out of shared memory" in str(report)


def test_an_input_written_in_a_later_call_is_found() -> None:
    count = iter(range(1, 1000))

    def scribble(base: Any, codes: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        scores = base.score(codes, *rest)
        if next(count) == 8:
            codes[0, 0, 0] ^= 1
        return scores

    report = check(Altered(right(), score=scribble))
    assert report.verdict is Verdict.VIOLATION
    assert "score wrote to its argument 1, an input" in str(report)


class FusedFault(FusedReference):
    """The fused reference; ``change(inputs, selection)`` from its second call on."""

    def __init__(self, change: Callable[[Inputs, torch.Tensor], None], first: int = 2) -> None:
        super().__init__(None)
        self._change, self._first, self._calls = change, first, 0

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        shown = super().run(inputs)
        self._calls += 1
        if self._calls >= self._first:
            self._change(inputs, shown["selection"])
        return shown


def test_fused_candidates_are_repeated_too() -> None:
    inputs = case(context=515, rows=4, topk=16)
    report = check(FusedFault(lambda _, chosen: lose_a_key(chosen), first=4), inputs, repeat=4)
    assert (report.verdict, lines(report)["repeat: set"].differing) == (Verdict.REFUSED, 3)
    assert "repeat: scores" not in lines(report)


def test_a_fused_candidate_that_writes_its_inputs_is_found_and_harms_nobody() -> None:
    inputs = case(context=515, rows=4, topk=16)
    before = inputs.query.copy()

    def scribble(given: Inputs, _: torch.Tensor) -> None:
        given.query[0, 0, 0] = np.float32(-0.0) if given.query[0, 0, 0] == 0 else -given.query[0, 0, 0]

    report = check(FusedFault(scribble, first=1), inputs)
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, "end to end")
    assert "run wrote to `inputs.query`" in str(report)
    assert np.array_equal(inputs.query, before)


def test_zero_repeats_leave_everything_out() -> None:
    found = lines(check(sometimes("score", lose_a_score, {3}), repeat=0))
    assert not [name for name in found if name.startswith("repeat") or name in AFTERWARDS]


def test_negative_repeats_are_a_usage_error() -> None:
    with pytest.raises(ValueError, match=r"`crosscheck\(repeat=...\)` should not be negative, got -1"):
        check(right(), repeat=-1)


def test_slow_candidates_are_repeated_less_and_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    line = lines(check(load("emulated", None)))["repeat: scores"]
    assert (line.verdict, line.elements) == (Verdict.IDENTICAL, 3)
    assert line.note == "3 of 20 repeats: a call takes 1 s and the limit is 3 s"


def test_budget_always_allows_one_call_and_counts_those_that_raise() -> None:
    budget = Budget(seconds=0.0)
    assert budget.open
    with pytest.raises(ZeroDivisionError):
        budget.time(lambda: 1 // 0)
    assert (budget.calls, budget.open) == (1, False)
    assert budget.shortfall(1, 1, "repeats") == ""


def _scorer_arguments(inputs: Inputs) -> list[torch.Tensor]:
    from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
    from dsa_crosscheck.compare.setup import Setup
    from dsa_crosscheck.reference.models import model

    batch = ScorerBatch.of(Setup(inputs, right().conventions, model("ieee-fp32")))
    arrays = (batch.codes, batch.weights, batch.cache, batch.block_table, batch.request_of_row, batch.lengths)
    return [torch.from_numpy(np.asarray(array)) for array in arrays]

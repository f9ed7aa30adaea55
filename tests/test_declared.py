"""A candidate may declare the accumulator model that its scores are judged by."""

from __future__ import annotations

import pytest
import torch
from candidates import Altered, case, judge, right

from dsa_crosscheck.compare.verdict import Verdict


def coarse(accumulator: str | None) -> Altered:
    """Scores cut to 11 bits: more than float32 may lose, less than products that are cut to 14 with every addition."""

    def score(base: object, *arguments: torch.Tensor) -> torch.Tensor:
        scores = right().score(*arguments)
        return (scores.view(torch.int32) & -(1 << 13)).view(torch.float32)

    candidate = Altered(right(), score=score)
    if accumulator is not None:
        candidate.accumulator = accumulator
    return candidate


def test_a_declared_model_judges_and_the_implied_one_is_told() -> None:
    report = judge(case(), coarse("tensor-core-fp8"))
    assert (report.verdict, report.bound) == (Verdict.WITHIN_BOUND, "tensor-core-fp8")
    (note,) = report.notes
    factor = float(note.split("reach ")[1].split(" times")[0])
    assert factor > 1.0, note
    (line,) = [line for line in judge(case(), coarse(None)).stages if line.stage == "scores"]
    assert line.verdict is Verdict.VIOLATION
    assert factor == pytest.approx(line.factor, rel=1e-2), "the same figure as under that model itself"
    assert note in report.to_dict()["notes"]
    assert "which the conventions imply" in " ".join(str(report).split())


def test_a_bound_that_is_asked_for_comes_first() -> None:
    report = judge(case(), coarse("tensor-core-fp8"), bound="ieee-fp32")
    assert (report.verdict, report.bound, report.notes) == (Verdict.VIOLATION, "ieee-fp32", ())


def test_a_declaration_of_what_is_implied_adds_nothing() -> None:
    assert judge(case(), coarse("ieee-fp32")).notes == judge(case(), coarse(None)).notes == ()


def test_a_declared_name_must_be_a_model() -> None:
    with pytest.raises(ValueError, match=r"`altered.accumulator` should be one of \('ieee-fp32', .*got 'fp22'"):
        judge(case(), coarse("fp22"))

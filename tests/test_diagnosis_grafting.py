"""Grafts name the operand that carries a fault."""

from __future__ import annotations

import candidates
import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.explanation import Explanation
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
INPUTS = candidates.case()


def explained(candidate: object) -> Explanation:
    report = crosscheck(INPUTS, candidate, preset=FP8, repeat=0)
    assert report.explanation is not None
    return report.explanation


def bad(found: Explanation) -> set[tuple[str, str, str]]:
    return {(g.key, g.query, g.scorer) for g in found.grafts if g.verdict not in ("IDENTICAL", "WITHIN_BOUND")}


R, C = "reference", "candidate"


def test_hadamard_on_the_query_only() -> None:
    """The transform is missing on keys: whatever uses the candidate's keys is wrong, and at chance level."""
    found = explained(ReferenceCandidate(FP8.with_field("hadamard_key", False)))
    assert bad(found) == {(C, R, R), (C, C, R), (C, C, C)}
    assert found.graft_sentence.startswith("only the candidate's keys")
    assert found.operand == "key"
    assert "different bases" in found.cause
    assert all(g.overlap < 0.9 for g in found.grafts if g.key == C)


def test_hadamard_on_the_key_only() -> None:
    found = explained(ReferenceCandidate(FP8.with_field("hadamard_query", False)))
    assert bad(found) == {(R, C, R), (C, C, R), (C, C, C)}
    assert found.graft_sentence.startswith("only the candidate's queries")
    assert found.operand == "query"


def test_no_hadamard_at_all_agrees_with_itself_up_to_the_format() -> None:
    """In another basis on both sides, keys and queries are wrong one by one, and have one shared cause."""
    found = explained(candidates.flipped(candidates.right(), "hadamard_order", "sequency"))
    assert {(C, R, R), (R, C, R)} <= bad(found)
    assert (C, C, R) not in bad(found)
    assert "agree with each other" in found.graft_sentence


def test_the_scorer_alone() -> None:
    found = explained(ReferenceCandidate(FP8.with_field("relu", False)))
    assert bad(found) == {(R, R, C), (C, C, C)}
    assert found.graft_sentence.startswith("only the candidate's scorer")


def test_a_scorer_that_raises_is_malformed_in_every_graft() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no kernel")

    found = explained(candidates.Altered(ReferenceCandidate(FP8), score=score))
    assert {g.verdict for g in found.grafts if g.scorer == C} == {"MALFORMED"}


def test_a_stage_that_is_not_offered_is_not_grafted() -> None:
    flipped = ReferenceCandidate(FP8.with_field("hadamard_key", False))
    found = explained(candidates.Altered(flipped, encode_query=None, score=None))
    assert [(g.key, g.query, g.scorer) for g in found.grafts] == [(C, R, R)]


def test_a_selection_fault_needs_no_grafts() -> None:
    found = explained(ReferenceCandidate(FP8.with_field("topk_padding", "zero")))
    assert found.grafts == ()
    assert found.first_stage == "selection"

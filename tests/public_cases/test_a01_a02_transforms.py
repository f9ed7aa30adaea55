"""A01: RoPE pairs other dimensions, on both operands. A02: the Hadamard transform on one operand only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import EXACT, ROTATED, inputs_of, normal, random_request
from verdicts import changed, fails, judged, line, passes, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
V32 = PRESETS["deepseek-v32"].conventions
ONE_PAIRING = "matches if rope_pairing is {} instead of {}: RoPE pairs other dimensions"


def long_request(keys: int, topk: int, heads: int = 4) -> Inputs:
    """Queries at the last position, with RoPE."""
    return random_request(Geometry(heads=heads, compress_ratio=1, topk=topk), keys, 2)


def test_a01_pairing_of_both_operands() -> None:
    inputs = long_request(512, 64)
    passes(inputs, FP8)
    candidate = ReferenceCandidate(FP8.with_field("rope_pairing", "half-split"))
    report = judged(inputs, candidate, FP8)
    fails(
        report,
        Verdict.VIOLATION,
        "key scales",
        "operand: key .* CAUSE: " + ONE_PAIRING.format("half-split", "interleaved"),
        r"keys and queries have the same change \(rope_pairing half-split\): they agree with each other, not with",
    )
    assert report.selection is not None
    assert report.selection.overlap_mean < 0.6
    # The candidate's own chain is consistent: only the stages on the reference's inputs show the fault.
    assert line(report, "end to end").verdict.passed
    other = judged(inputs, candidate, FP8.with_field("rope_pairing", "half-split"))
    assert other.verdict.passed
    assert other.selection is not None
    assert other.selection.overlap_mean == 1.0


def test_a01_adjacent_pairs_where_half_split_is_declared() -> None:
    inputs = long_request(200, 32)
    passes(inputs, V32)
    report = judged(inputs, ReferenceCandidate(V32.with_field("rope_pairing", "interleaved")), V32, explain=False)
    fails(report, Verdict.VIOLATION, "key scales")
    assert line(report, "query codes").verdict is Verdict.VIOLATION


def test_a01_one_operand_alone() -> None:
    inputs = long_request(128, 16)
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, encode_query=under("rope_pairing", "half-split", "encode_query")), FP8)
    fails(
        report,
        Verdict.VIOLATION,
        "query codes",
        "operand: query .* CAUSE: " + ONE_PAIRING.format("half-split", "interleaved"),
        "only the candidate's queries, put among the reference's parts, make the scores wrong",
    )


def test_a01_position_zero_proves_nothing() -> None:
    """One token at position 0 is turned by no angle: the wrong pairing shows at position 1 at the earliest."""
    geometry = Geometry(heads=4, compress_ratio=1, topk=1)
    keys, query = [normal(1, 2, 128)], normal(2, 2, 4, 128)
    wrong = ReferenceCandidate(FP8.with_field("rope_pairing", "half-split"))
    at_zero = inputs_of(geometry, [keys[0][:1]], [(0, 0)], query[:1], turned=True)
    assert judged(at_zero, wrong, FP8).verdict is Verdict.VACUOUS
    later = inputs_of(geometry, keys, [(0, 0), (0, 1)], query, turned=True)
    passes(later, FP8)
    assert judged(later, wrong, FP8, explain=False).verdict is Verdict.VIOLATION


def one_head(keys: int, topk: int) -> Inputs:
    """One head of positive weight: every row searches by a single product."""
    inputs = random_request(Geometry(heads=1, compress_ratio=1, topk=topk), keys, 4, turned=False)
    return replace(inputs, gate=np.abs(inputs.gate))


def test_a02_rotation_on_the_query_only() -> None:
    inputs = one_head(128, 16)
    passes(inputs, ROTATED)
    report = judged(inputs, changed(ROTATED, store_keys=under("hadamard_key", False, "store_keys")), ROTATED)
    fails(
        report,
        Verdict.VIOLATION,
        "key codes",
        "matches if hadamard_key is False instead of True: .* key and query are then in different bases",
        "only the candidate's keys, put among the reference's parts, make the scores wrong",
        r"overlap 0\.\d+ is chance level \(k / n is 0\.12\): a structural fault, not one of precision",
    )


@pytest.mark.parametrize(
    ("method", "field", "stage"),
    [("encode_query", "hadamard_query", "query codes"), ("store_keys", "hadamard_key", "key scales")],
)
def test_a02_either_side_of_fp8(method: str, field: str, stage: str) -> None:
    inputs = random_request(Geometry(heads=8, head_dim=64, rope_dim=32, compress_ratio=1, topk=32), 512, 4)
    passes(inputs, FP8)
    changes: dict[str, Any] = {method: under(field, False, method)}
    report = judged(inputs, changed(FP8, **changes), FP8, explain=False)
    fails(report, Verdict.VIOLATION, stage, "chance level .* a structural fault")


def test_a02_neither_side_is_another_convention() -> None:
    """Left out on both sides the scores agree: only the stored bytes tell, and no selection moves."""
    inputs = one_head(128, 16)
    report = judged(inputs, ReferenceCandidate(EXACT), ROTATED)
    fails(report, Verdict.VIOLATION, "key codes", "the Hadamard transform differs on keys")
    assert report.selection is not None
    assert report.selection.overlap_mean == 1.0
    assert not report.notes

"""A03: no ReLU before the head sum. A04: two quantisation faults of very different size in one kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, inputs_of, normal, random_request
from verdicts import changed, fails, judged, line, passes, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
NO_RELU = "matches if relu is False instead of True: the clamp at zero before the head sum differs"
POWERS = replace(PRESETS["deepseek-v32"].conventions, norm="rms", query_scale_in="record", bf16_points=frozenset())
"""fp8 with power-of-two scales on both operands, each beside its codes."""


def two_keys(gate: float) -> Inputs:
    """Products (+1, -3) of key 0 and (+0.5, 0) of key 1 with two heads of equal weight."""
    keys = np.zeros((2, 16))
    keys[0, :2], keys[1, :2] = (1, -3), (0.5, 0)
    keys[:, 8] = np.sqrt(16 - (keys**2).sum(axis=1))
    query = np.zeros((1, 2, 16))
    query[0, 0, 0] = query[0, 1, 1] = 1
    geometry = Geometry(heads=2, head_dim=16, rope_dim=2, compress_ratio=1, topk=1)
    return inputs_of(geometry, [keys], [(0, 1)], query, np.full((1, 2), gate))


def test_a03_two_heads_two_keys() -> None:
    inputs = two_keys(1.0)
    passes(inputs, EXACT)
    report = judged(inputs, changed(EXACT, score=under("relu", False, "score")), EXACT)
    fails(
        report,
        Verdict.VIOLATION,
        "scores",
        NO_RELU,
        "scores: 1 are below zero in rows with no negative weight, which ReLU makes impossible; first at row 0 key 0",
        r"row 0: key 0 \(0\.\d+\) missed for key 1 \(0\.\d+\)",
    )


def test_a03_negative_weights_make_positive_scores_impossible() -> None:
    inputs = two_keys(-1.0)
    passes(inputs, EXACT)
    report = judged(inputs, changed(EXACT, score=under("relu", False, "score")), EXACT)
    fails(
        report,
        Verdict.VIOLATION,
        "scores",
        NO_RELU,
        "above zero in rows with no positive weight",
        "key 1 .* missed for key 0",
    )


def test_a03_mixed_weights_leave_no_impossible_sign() -> None:
    inputs = random_request(Geometry(heads=16, compress_ratio=1, topk=16), 96, 3)
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, score=under("relu", False, "score")), FP8)
    fails(report, Verdict.VIOLATION, "scores", NO_RELU)
    assert report.explanation is not None
    assert not [fact for fact in report.explanation.facts if "impossible" in fact]


def test_a03_products_that_are_all_positive_cannot_show_it() -> None:
    inputs = two_keys(1.0)
    inputs = replace(inputs, pooled=np.abs(inputs.pooled))
    assert judged(inputs, changed(EXACT, score=under("relu", False, "score")), EXACT).verdict.passed


def narrow_norm(right: ReferenceCandidate, pooled: torch.Tensor, weight: torch.Tensor, *rest: Any) -> None:
    """Norm parameters as bfloat16."""
    right.store_keys(pooled, weight.bfloat16().float(), *rest)


def fused_case(keys: int, heads: int) -> Inputs:
    """Norm weights 1 + an odd multiple of 2^-10, which bfloat16 (eight bits) cannot hold."""
    weight = 1 + (2 * np.random.default_rng(5).integers(0, 4, 128) + 1) * 2.0**-10
    query, keys_ = normal(6, 1, heads, 128), normal(7, keys, 128)
    return inputs_of(
        Geometry(heads=heads, compress_ratio=1, topk=1), [keys_], [(0, keys - 1)], query, norm_weight=weight
    )


UNROUNDED_QUERY = under("query.scale", "fp32", "encode_query")


def test_a04_both_faults_are_told_apart() -> None:
    inputs = fused_case(8, 64)
    passes(inputs, POWERS)
    report = judged(inputs, changed(POWERS, store_keys=narrow_norm, encode_query=UNROUNDED_QUERY), POWERS)
    fails(
        report,
        Verdict.VIOLATION,
        "key codes",
        r"key codes: [\d.]+ % of the codes differ \(\d+ of 1,024\), [5-9]\d of them by one step",
        "store_keys: matches the reference with one mistake: the norm weight is rounded to bf16",
        r"query scales: 6[34] of 64 scales are not powers of two",
        "encode_query: matches if query.scale is fp32 instead of power-of-two",
    )
    share = line(report, "key codes").differing / line(report, "key codes").elements
    assert 0.001 < share < 0.1
    assert line(report, "query codes").differing / line(report, "query codes").elements > 0.8
    assert line(report, "key scales").verdict.passed


@pytest.mark.parametrize(
    ("method", "change", "stage"),
    [("store_keys", narrow_norm, "key codes"), ("encode_query", UNROUNDED_QUERY, "query scales")],
)
def test_a04_each_alone_blames_its_operand(method: str, change: Any, stage: str) -> None:
    inputs = fused_case(6, 16)
    passes(inputs, POWERS)
    changes = {method: change}
    report = judged(inputs, changed(POWERS, **changes), POWERS, explain=False)
    fails(report, Verdict.VIOLATION, stage)
    side = "key" if method == "store_keys" else "query"
    assert all(r.stage.startswith(side) or r.stage == "cache bytes" for r in report.stages if r.verdict.failed)


def test_a04_unrounded_scale_on_the_other_operand() -> None:
    inputs = fused_case(8, 4)
    passes(inputs, POWERS)
    report = judged(inputs, changed(POWERS, store_keys=under("key.scale", "fp32", "store_keys")), POWERS)
    fails(
        report,
        Verdict.VIOLATION,
        "key scales",
        r"key scales: \d of 8 scales are not powers of two",
        "matches if key.scale is fp32 instead of power-of-two",
    )


def test_a04_norm_weights_that_bfloat16_holds_cannot_show_it() -> None:
    inputs = replace(fused_case(8, 4), norm_weight=np.full(128, 1.5, np.float32))
    assert judged(inputs, changed(POWERS, store_keys=narrow_norm), POWERS).verdict.passed

"""A07: fp8 flavours mixed up. A08: an all-zero block divides by zero. A09: fp4 midpoints away from zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, inputs_of, normal, random_request
from verdicts import changed, fails, judged, line, passes, said, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.reference.cache import key_layout, write_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.formats import E2M1
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import Quantised, code_midpoints
from dsa_crosscheck.reference.record import pack_record

FP8 = PRESETS["sglang-v4-fp8"].conventions
PLAIN = replace(FP8, hadamard_key=False, hadamard_query=False, hadamard_order=None, hadamard_scale=None)
FNUZ = "fp8-e4m3fnuz"
OTHER_FLAVOUR = "{} times the reference everywhere: {} fp8 codes are read in the other flavour"


def one_query(conventions: Any = FP8, keys: int = 32) -> Inputs:
    """One row, one head."""
    inputs = random_request(Geometry(heads=1, compress_ratio=1, topk=4), keys, 1)
    passes(inputs, conventions)
    return inputs


def test_a07_query_read_in_the_other_flavour() -> None:
    report = judged(one_query(), changed(FP8, score=under("query.format", FNUZ, "score")), FP8)
    fails(report, Verdict.SCALE_ONLY, "scores", OTHER_FLAVOUR.format("0.5", "one operand's"), "query.format is " + FNUZ)
    assert report.selection is not None
    assert report.selection.overlap_mean == 1.0


def test_a07_keys_and_both_operands() -> None:
    inputs = one_query()
    keys = judged(inputs, changed(FP8, score=under("key.format", FNUZ, "score")), FP8)
    fails(keys, Verdict.SCALE_ONLY, "scores", OTHER_FLAVOUR.format("0.5", "one operand's"), "key.format is " + FNUZ)

    def both(right: ReferenceCandidate, *args: Any) -> torch.Tensor:
        changed = right.conventions.with_field("key.format", FNUZ).with_field("query.format", FNUZ)
        return ReferenceCandidate(changed).score(*args)

    report = judged(inputs, changed(FP8, score=both), FP8, explain=False)
    fails(report, Verdict.SCALE_ONLY, "scores", OTHER_FLAVOUR.format("0.25", "both operands'"))


def test_a07_few_scores_prove_no_ratio_but_name_the_flavour() -> None:
    report = judged(one_query(keys=8), changed(FP8, score=under("query.format", FNUZ, "score")), FP8)
    fails(report, Verdict.VIOLATION, "scores", f"matches if .*format is {FNUZ} instead of fp8-e4m3fn")


def test_a07_negative_zero_becomes_nan() -> None:
    """Code 0x80 is -0 in one flavour and NaN in the other: a query with one tells them apart at once."""
    inputs = one_query(PLAIN)
    inputs.query[0, 0, :64] = -0.0
    passes(inputs, PLAIN)
    report = judged(inputs, changed(PLAIN, score=under("query.format", FNUZ, "score")), PLAIN)
    fails(report, Verdict.VIOLATION, "scores", r"scores: 32 NaN where the reference has numbers, first at \(0, 0\)")
    assert "query.format is " + FNUZ in said(report)


def test_a07_a_swallowed_rejection_is_no_result() -> None:
    """The dtype error was raised where exceptions were ignored; here it fails the stage."""

    def score(right: ReferenceCandidate, *args: Any) -> torch.Tensor:
        raise TypeError("float8_e4m3fn is not supported here")

    report = judged(one_query(), changed(FP8, score=score), FP8, explain=False)
    fails(report, Verdict.MALFORMED, "score", "score raised TypeError: float8_e4m3fn is not supported here")


def without_floor(right: ReferenceCandidate, pooled: torch.Tensor, *rest: Any) -> None:
    """A group whose amax is below the smallest normal float32 gives 0 / 0: scale 0 and NaN codes."""
    *_, slots, cache = rest
    right.store_keys(pooled, *rest)
    geometry = Geometry(heads=1, head_dim=pooled.shape[1], rope_dim=2)
    layout = key_layout(right.conventions.key, geometry, right.conventions.page_order)
    lost = pooled.abs().amax(dim=1) < torch.finfo(torch.float32).tiny
    nan = Quantised(
        np.full((int(lost.sum()), pooled.shape[1]), 0x7F, np.uint8), np.zeros((int(lost.sum()), 1), np.float32)
    )
    write_records(cache.numpy(), layout, pack_record(nan, right.conventions.key), slots[lost].numpy())


def small_key(size: float, keys: int = 2) -> Inputs:
    """``keys`` keys, the first of them times ``size``; the norm's epsilon keeps it small."""
    pooled = normal(3, keys, 32)
    pooled[0] *= np.float32(size)
    geometry = Geometry(heads=2, head_dim=32, rope_dim=2, compress_ratio=1, topk=1)
    return inputs_of(geometry, [pooled], [(0, keys - 1)], normal(4, 1, 2, 32))


@pytest.mark.parametrize(("size", "amax"), [(0.0, "0"), (1e-39, r"[\d.]+e-3\d"), (1e-42, r"[\d.]+e-39")])
def test_a08_zero_and_denormal_blocks(size: float, amax: str) -> None:
    inputs = small_key(size)
    passes(inputs, FP8)
    fails(
        judged(inputs, changed(FP8, store_keys=without_floor), FP8),
        Verdict.VIOLATION,
        "key scales",
        f"row 0: amax {amax}; the reference has code 0x0 with scale 2.23e-07 "
        r"\(floor 0.0001 on the amax\), here code 0x7f with scale 0",
        "key codes: 32 NaN where the reference has numbers",
        "all errors lie in key 0",
    )


def test_a08_no_small_block_no_fault() -> None:
    assert judged(small_key(1.0), changed(FP8, store_keys=without_floor), FP8).verdict.passed


def test_a08_zero_query_head() -> None:
    """The same on the other operand, whose scale travels in the weight."""

    def encode_query(right: ReferenceCandidate, query: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        codes, weights = right.encode_query(query, *rest)
        codes[(query == 0).all(dim=-1)] = 0x7F
        return codes, weights

    inputs = small_key(1.0, keys=4)
    inputs.query[0, 1] = 0.0
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, encode_query=encode_query), FP8)
    fails(report, Verdict.VIOLATION, "query codes", "query codes: 32 NaN where the reference has numbers", "head 1")


def test_a08_another_floor_is_named_and_harmless_in_the_score() -> None:
    inputs = small_key(0.0, keys=4)
    report = judged(inputs, changed(FP8, store_keys=under("key.amax_floor", 1e-10, "store_keys")), FP8)
    fails(report, Verdict.VIOLATION, "key scales", "matches if key.amax_floor is 1e-10 instead of 0.0001")
    assert line(report, "key codes").verdict.passed
    assert line(report, "end to end").verdict.passed
    assert "only the candidate's keys" not in said(report)


MIDPOINTS = code_midpoints(E2M1)
HALVES = replace(
    EXACT,
    query=Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even"),
    query_scale_in="record",
    bf16_points=frozenset({"query-rotated"}),
)
"""fp4 queries of bfloat16 values: the only ones that can lie exactly on a midpoint."""


def midpoint_query(step: int = 0) -> np.ndarray:
    """[1, 1, 32]: both signs of the seven midpoints, 6 (so that the scale is 1), and 1 for the rest.

    ``step``: so many units in the last place of bfloat16 away from the midpoints.
    """
    head = np.ones((1, 1, 32), np.float32)
    beside = (MIDPOINTS.astype(np.float32).view(np.int32) + np.int32(step * 2**16)).view(np.float32)
    head[0, 0, :7], head[0, 0, 7:14], head[0, 0, 14] = beside, -beside, 6.0
    return head


def ties_away(compare: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Any:
    """``encode_query`` that counts the midpoints which ``compare`` says a magnitude has passed; scale 1."""

    def encode_query(right: ReferenceCandidate, query: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        _, weights = right.encode_query(query, *rest)
        x = query.numpy()
        codes = compare(np.abs(x)[..., None], MIDPOINTS).sum(axis=-1).astype(np.uint8)
        codes |= np.where(np.signbit(x) & (codes > 0), np.uint8(8), np.uint8(0))
        ones = np.ones((*x.shape[:2], 1), np.float32)
        return torch.from_numpy(pack_record(Quantised(codes, ones), right.conventions.query)), weights

    return encode_query


def fp4_request(query: np.ndarray) -> Inputs:
    """The query over four keys."""
    geometry = Geometry(heads=1, head_dim=32, rope_dim=2, compress_ratio=1, topk=1)
    inputs = inputs_of(geometry, [normal(8, 4, 32)], [(0, 3)], query)
    passes(inputs, HALVES)
    return inputs


ONLY = r"query codes: disagreement only at exact midpoints, {}: {} of 7 midpoints \({}\)"


def test_a09_greater_or_equal_sends_midpoints_away_from_zero() -> None:
    report = judged(fp4_request(midpoint_query()), changed(HALVES, encode_query=ties_away(np.greater_equal)), HALVES)
    fails(
        report,
        Verdict.VIOLATION,
        "query codes",
        ONLY.format("away from zero", 4, "0.25, 1.25, 2.5, 5"),
        r"query codes: 25 % of the codes differ \(8 of 32\), all by one step",
    )


def test_a09_strictly_greater_sends_them_toward_zero() -> None:
    report = judged(fp4_request(midpoint_query()), changed(HALVES, encode_query=ties_away(np.greater)), HALVES)
    fails(
        report,
        Verdict.VIOLATION,
        "query codes",
        ONLY.format("toward zero", 3, "0.75, 1.75, 3.5"),
        "matches if query.ties is toward-zero instead of even",
    )


@pytest.mark.parametrize("step", [-1, 1])
def test_a09_one_step_beside_a_midpoint_all_rules_agree(step: int) -> None:
    inputs = fp4_request(midpoint_query(step))
    assert judged(inputs, changed(HALVES, encode_query=ties_away(np.greater_equal)), HALVES).verdict.passed


def test_a09_on_stored_keys() -> None:
    """Keys come out of the norm: its weight is their size, and bfloat16 rounding puts them on the midpoints."""
    conventions = replace(EXACT, key=HALVES.query, bf16_points=frozenset({"normed", "key-roped", "key-rotated"}))
    head = midpoint_query()[0]
    size = np.full(32, np.sqrt((head.astype(np.float64) ** 2).mean()))
    geometry = Geometry(heads=1, head_dim=32, rope_dim=2, compress_ratio=1, topk=1)
    keys = np.concatenate([head, normal(9, 3, 32)])
    inputs = inputs_of(geometry, [keys], [(0, 3)], normal(8, 1, 1, 32), norm_weight=size)

    def store_keys(right: ReferenceCandidate, pooled: torch.Tensor, *rest: Any) -> None:
        *_, slots, cache = rest
        right.store_keys(pooled, *rest)
        codes = (np.abs(head)[..., None] >= MIDPOINTS).sum(axis=-1).astype(np.uint8)
        codes |= np.where(np.signbit(head) & (codes > 0), np.uint8(8), np.uint8(0))
        layout = key_layout(conventions.key, geometry, conventions.page_order)
        record = pack_record(Quantised(codes, np.ones((1, 1), np.float32)), conventions.key)
        write_records(cache.numpy(), layout, record, slots[:1].numpy())

    passes(inputs, conventions)
    report = judged(inputs, changed(conventions, store_keys=store_keys), conventions)
    fails(
        report,
        Verdict.VIOLATION,
        "key codes",
        ONLY.replace("query", "key").format("away from zero", 4, "0.25, 1.25, 2.5, 5"),
    )

"""Candidates that misbehave fail only where they do; candidates that sum in another order do not fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from candidates import Altered, case, flipped, judge, right
from faults import VALUE_BYTES

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.cuda_impl.unfused.cache import gather_keys, page_layout
from dsa_crosscheck.cuda_impl.unfused.quantise import dequantise
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.query import encode_query as reference_encode

METHODS = ("pool", "store_keys", "encode_query", "score", "select")
FP32_PRESETS = [name for name, row in PRESETS.items() if row.conventions.score_rounding == "none"]


def raises(base: Any, *args: Any) -> Any:
    raise IndexError("no such page\non this machine")


def exits(base: Any, *args: Any) -> Any:
    sys.exit(0)


MISBEHAVIOUR: list[tuple[str, str, Any, str]] = [
    *[(f"{m} raises", m, raises, f"{m} raised IndexError: no such page") for m in METHODS],
    *[(f"{m} exits", m, exits, f"{m} raised SystemExit: 0") for m in METHODS],
    *[
        (f"{m} gives numpy", m, lambda base, *a: np.zeros(3), f"{m} should return torch tensors, got ndarray")
        for m in ("pool", "encode_query", "score", "select")
    ],
    ("nothing", "select", lambda base, *a: None, "select should return torch tensors, got NoneType"),
    (
        "a row short",
        "score",
        lambda base, *a: base.score(*a)[:-1],
        r"score should return scores as float32 [8, 512], got float32 [7, 512]",
    ),
    (
        "a column more",
        "pool",
        lambda base, *a: torch.nn.functional.pad(base.pool(*a), (0, 1)),
        "pool should return pooled keys as float32 or float64 [128, 128], got float32 [128, 129]",
    ),
    (
        "double scores",
        "score",
        lambda base, *a: base.score(*a).double(),
        "score should return scores as float32 [8, 512], got float64 [8, 512]",
    ),
    (
        "float indices",
        "select",
        lambda base, *a: base.select(*a).float(),
        "select should return indices as int32 or int64 [8, 64], got float32 [8, 64]",
    ),
    (
        "codes alone",
        "encode_query",
        lambda base, *a: base.encode_query(*a)[0],
        "encode_query should return a tuple of 2 tensors, got 1",
    ),
    (
        "scales as well",
        "encode_query",
        lambda base, *a: (*base.encode_query(*a), torch.ones(8, 64)),
        "encode_query should return a tuple of 2 tensors, got 3",
    ),
    (
        "scores twice",
        "score",
        lambda base, *a: (base.score(*a), base.score(*a)),
        "score should return one tensor, got 2",
    ),
    (
        "signed codes",
        "encode_query",
        lambda base, *a: (base.encode_query(*a)[0].view(torch.int8), base.encode_query(*a)[1]),
        "encode_query should return codes as uint8 [8, 64, 128], got int8 [8, 64, 128]",
    ),
    (
        "float8 codes",
        "encode_query",
        lambda base, *a: (base.encode_query(*a)[0].view(torch.float8_e4m3fn), base.encode_query(*a)[1]),
        "encode_query returned torch.float8_e4m3fn on cpu",
    ),
    (
        "a larger cache",
        "store_keys",
        lambda base, *a: a[-1].set_(torch.zeros(15, 8448, dtype=torch.uint8)),
        "store_keys should return its cache as uint8 [14, 8448], got uint8 [15, 8448]",
    ),
]


@pytest.mark.parametrize(("method", "change", "note"), [m[1:] for m in MISBEHAVIOUR], ids=[m[0] for m in MISBEHAVIOUR])
def test_misbehaviour_is_malformed(method: str, change: Any, note: str) -> None:
    report = judge(case(), Altered(right(), **{method: change}))
    fault = next(r for r in report.stages if r.stage == method)
    assert (report.verdict, report.first_fault, fault.verdict) == (Verdict.MALFORMED, method, Verdict.MALFORMED)
    assert fault.note.startswith(note)
    if change is raises:
        assert fault.note.endswith(f"({Path(__file__).name}:{raises.__code__.co_firstlineno + 1})")
    others = [r for r in report.stages if r.stage not in (method, "end to end")]
    assert len(others) >= 5
    assert all(r.verdict.passed for r in others)
    assert max(map(len, str(report).split("\n"))) <= 100


@pytest.mark.parametrize(
    ("method", "place"),
    [("pool", 0), ("store_keys", 0), ("store_keys", 4), ("encode_query", 0), ("score", 2), ("score", 3), ("select", 1)],
)
def test_writing_to_an_input_is_a_violation(method: str, place: int) -> None:
    def change(base: Any, *args: Any) -> Any:
        out = getattr(base, method)(*args)
        args[place].view(-1)[0] += 1
        return out

    report = judge(case(), Altered(right(), **{method: change}))
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, method)
    assert f"{method} wrote to its argument {place + 1}, an input" in str(report)


def test_unsupported_is_an_error_and_not_a_fault() -> None:
    def change(base: Any, *args: Any) -> Any:
        raise Unsupported("no kernel for this size")

    with pytest.raises(ValueError, match="no kernel for this size"):
        judge(case(), Altered(right(), score=change))


def permuted(base: Any, codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, *rest: torch.Tensor) -> Any:
    """Scores with dims and heads summed in a random order."""
    generator = torch.Generator().manual_seed(3)
    heads = torch.randperm(codes.shape[1], generator=generator)
    dims = torch.randperm(128, generator=generator)
    other = cache.clone()
    other[:, :VALUE_BYTES] = cache[:, :VALUE_BYTES].view(-1, 64, 128)[..., dims].flatten(1)
    return base.score(codes[:, heads][..., dims], weights[:, heads], other, *rest)


def exact_fp8(base: Any, codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, *rest: torch.Tensor) -> Any:
    """Scores added up in float64."""
    table, request, lengths = rest
    c, width = base.conventions, int(lengths.max())
    layout = page_layout(c.key, Geometry(), c.page_order)
    pages = table[request.long(), : -(-width // 64)].clamp(min=0).long()
    keys = gather_keys(cache, pages, c.key, layout)
    values = dequantise(keys.values, c.key).double() * keys.scales.double()
    product = dequantise(codes, c.query).double() @ values.transpose(1, 2)
    return (product.relu() * weights.double().unsqueeze(-1)).sum(dim=1)[:, :width].float()


@pytest.mark.parametrize("name", ["gaussian", "plateau", "spread"])
@pytest.mark.parametrize("score", [permuted, exact_fp8])
def test_another_order_of_summation_passes(name: str, score: Any) -> None:
    report = judge(case(name=name), Altered(right(), score=score))
    assert report.verdict.passed, report
    assert next(r for r in report.stages if r.stage == "scores").factor < 0.5


@pytest.mark.parametrize("name", ["gaussian", "plateau"])
@pytest.mark.parametrize("preset", FP32_PRESETS)
def test_scores_off_by_half_an_ulp_pass(preset: str, name: str) -> None:
    def score(base: Any, *args: Any) -> Any:
        return torch.nextafter(base.score(*args), torch.tensor(torch.inf))

    report = judge(case(preset, name), Altered(right(preset), score=score))
    assert report.verdict.passed, report


def test_scale_by_reciprocal_passes_for_scale_by_division() -> None:
    base = right()
    other = flipped(base, "key.scale_from", "reciprocal")
    report = judge(case(), Altered(base, store_keys=lambda _, *a: other.store_keys(*a)))
    scales = next(r for r in report.stages if r.stage == "key scales")
    assert (report.verdict, scales.verdict) == (Verdict.WITHIN_BOUND, Verdict.WITHIN_BOUND)
    assert scales.differing > 0


def test_values_and_scales_may_err_in_opposite_directions() -> None:
    """An admissible candidate whose largest elements come out low, hence its folded scales, and all others high."""
    inputs, base = case(rows=16), right()
    setup = Setup(inputs, base.conventions, model("ieee-fp32"))
    values, bound = setup.trace.query.rotated, setup.query_bound.rotated
    largest = np.abs(values).max(axis=-1, keepdims=True)
    direction = np.where(np.abs(values) > largest - 2 * bound, -0.9, 0.9)
    moved = values + direction * bound * np.sign(values)

    codes, weights = reference_encode(moved, inputs.gate, base.conventions)
    encoded = torch.from_numpy(codes), torch.from_numpy(weights.astype(np.float32))
    report = judge(inputs, Altered(base, encode_query=lambda *_: encoded))
    lines = {r.stage: r for r in report.stages}
    assert report.verdict.passed, report
    assert lines["query codes"].differing > 100


def test_a_wrong_stored_scale_is_not_held_against_the_weights() -> None:
    base = flipped(right("deepseek-v32"), "query_scale_in", "record")

    def encode_query(base: Any, *args: Any) -> Any:
        codes, weights = base.encode_query(*args)
        codes[0, 0, -4:] = torch.tensor([2.0**10]).view(torch.uint8)
        return codes, weights

    report = judge(case("deepseek-v32"), Altered(base, encode_query=encode_query))
    lines = {r.stage: r for r in report.stages}
    assert report.first_fault == "query scales"
    assert lines["query scales"].at == "row 0 head 0 g0"
    assert lines["head weights"].verdict.passed


def test_another_choice_among_equal_scores_is_a_tie() -> None:
    inputs = case(name="plateau", rows=16, topk=32)
    report = judge(inputs, flipped(right(), "topk_ties", "high-index"), preset="sglang-v4-fp8")
    selection = next(r for r in report.stages if r.stage == "selection")
    assert selection.verdict is Verdict.TIE
    assert selection.differing > 0
    assert report.verdict.passed


def test_any_order_of_output_passes_where_none_is_declared() -> None:
    report = judge(case(), flipped(right(), "topk_order", "score"), preset="sglang-v4-fp8")
    assert next(r for r in report.stages if r.stage == "selection").verdict is Verdict.IDENTICAL
    assert report.verdict.passed


def test_negative_zero_codes_are_the_same_value() -> None:
    """A candidate may write either zero; the bytes differ and nothing else does."""

    def store_keys(base: Any, *args: Any) -> None:
        base.store_keys(*args)
        slots, cache = args[4:]
        values = cache[:, :VALUE_BYTES].view(-1, 64, 128)
        page, offset = slots // 64, slots % 64
        stored = values[page, offset]
        values[page, offset] = torch.where(stored == 0, 0x80, stored)

    report = judge(case(name="exact-integers"), Altered(right(), store_keys=store_keys))
    lines = {r.stage: r for r in report.stages}
    assert lines["key codes"].verdict is Verdict.IDENTICAL
    assert lines["cache bytes"].verdict is Verdict.WITHIN_BOUND
    assert lines["cache bytes"].differing > 0

"""``score_bound`` under every accumulator model: 1,000 admissible kernels stay inside, one outside does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from itertools import product as all_of

import admissible as arithmetic
import numpy as np
import pytest

from dsa_crosscheck.reference.models import BF16_UNIT, FP32_UNIT, MODELS, AccumulatorModel, model
from dsa_crosscheck.reference.score import Scores
from dsa_crosscheck.reference.score_bound import KeySizes, score_bound

COUNT = 1000
HEADS, DIM = 64, 128
Array = np.ndarray
Dot = Callable[[Array, Array, np.random.Generator], Array]
CUTS = (np.trunc, np.floor, np.rint)


@dataclass(frozen=True)
class Operands:
    """Codes with a scale each: query [heads, dim] and [heads], key [dim] and a number, and weights [heads]."""

    query: Array
    query_scales: Array
    key: Array
    key_scale: np.float32
    weights: Array

    def exact(self, relu: bool) -> tuple[Scores, Array, KeySizes]:
        """Float64 scores [1, 1], query values [1, heads, dim] and the key's sizes."""
        query = self.query.astype(np.float64) * self.query_scales[:, None]
        key = self.key.astype(np.float64) * self.key_scale
        product = query @ key
        product, size = (np.maximum(product, 0.0),) * 2 if relu else (product, np.abs(product))
        values = np.array([[self.weights @ product]]), np.array([[np.abs(self.weights) @ size]])
        sizes = KeySizes(np.array([[np.linalg.norm(key)]]), np.array([[np.abs(key).max()]]))
        return Scores(*values), query[None], sizes

    def bound(self, row: AccumulatorModel, relu: bool = True) -> float:
        scores, query, sizes = self.exact(relu)
        return float(score_bound(scores, query, self.weights[None].astype(np.float64), sizes, row)[0, 0])

    def ratio(self, got: Array, row: AccumulatorModel, relu: bool = True) -> float:
        """Worst error of kernels' scores [count] over the bound."""
        want = self.exact(relu)[0].values
        return arithmetic.worst(got.astype(np.float64) - want[0, 0], np.float64(self.bound(row, relu)))


def e4m3(x: Array) -> Array:
    return x.astype(np.float32).astype(arithmetic.ml_dtypes.float8_e4m3fn).astype(np.float32)


def operands(kind: str, seed: int, heads: int = HEADS, dim: int = DIM) -> Operands:
    """e4m3 codes; ``kind`` says how values are spread."""
    rng = np.random.default_rng([seed, *kind.encode()])
    query, key, weights = rng.standard_normal((heads, dim)), rng.standard_normal(dim), rng.standard_normal(heads)
    if kind == "one-sign":
        query, key, weights = np.abs(query), np.abs(key), np.abs(weights)
    elif kind == "outliers":
        query[:, :4] *= 30
        key[:4] *= 30
    elif kind == "octaves":
        query, key = query * 2.0 ** rng.uniform(-9, 0, query.shape), key * 2.0 ** rng.uniform(-9, 0, dim)
    elif kind == "cancelling":
        half = dim // 2
        query[:, half:], key[half:] = query[:, :half], -key[:half]
        query[:, 0] *= 1.5
    elif kind == "tiny":
        weights *= 2.0**-120
    limits = np.abs(query).max(axis=1, keepdims=True), np.abs(key).max()
    # Small enough for scores to be fp16 numbers: their overflow is not an error of an admissible kernel.
    scales = rng.uniform(1e-4, 1e-2, heads), rng.uniform(1e-4, 1e-2)
    return Operands(
        e4m3(query / limits[0] * 448),
        scales[0].astype(np.float32),
        e4m3(key / limits[1] * 448),
        np.float32(scales[1]),
        weights.astype(np.float32),
    )


KINDS = ("gaussian", "one-sign", "outliers", "octaves", "cancelling", "tiny")


def products(o: Operands, dot: Dot, count: int, rng: np.random.Generator, early: bool) -> Array:
    """q . k of every head, [count, heads]; ``early``: scales multiply the elements, rounded, not the product."""
    query, key = o.query, o.key
    if early:
        query, key = query * o.query_scales[:, None], key * o.key_scale
    shape = (count, *query.T.shape)
    product = dot(np.broadcast_to(query.T, shape), np.broadcast_to(key[:, None], shape), rng)
    return product if early else product * o.query_scales


def kernel(o: Operands, row: AccumulatorModel, count: int, seed: int, relu: bool = True) -> Array:
    """Scores [count] of kernels that the model admits, no two alike."""
    rng = np.random.default_rng(seed)
    inner: tuple[Dot, ...] = arithmetic.BALANCED if row.tree else arithmetic.ANY
    outer = inner
    if row.accumulator_bits is not None:
        bits = row.accumulator_bits
        inner = tuple(
            lambda a, b, rng, cut=cut: arithmetic.matrix_unit(a, b, rng, bits=bits, cut=cut, width=row.accumulate)
            for cut in CUTS
        )
    out = np.empty(count, np.float32)
    for way, part in arithmetic.parts(count, 2 * len(inner)):
        # A matrix unit multiplies codes; scales come after it.
        early = way % 2 == 0 and row.accumulator_bits is None
        dot, head_dot = inner[way // 2], outer[(way // 2 + way) % len(outer)]
        product = products(o, dot, part.stop - part.start, rng, early or bool(row.product_unit))
        if row.product_unit:
            product = arithmetic.to_bf16(product)
        product = np.maximum(product, np.float32(0)) if relu else product
        weights = np.broadcast_to(o.weights, product.shape)
        if row.weighted_unit:
            score = arithmetic.chain(arithmetic.to_bf16(product * weights), rng)
        else:
            score = head_dot(product, weights, rng)
        out[part] = score if early or row.product_unit else score * o.key_scale
    if row.score_unit == BF16_UNIT:
        return arithmetic.to_bf16(out)
    return arithmetic.to_fp16(out) if row.score_unit else out


@pytest.mark.parametrize("name", MODELS)
def test_a_thousand_admissible_kernels_stay_within_the_bound(name: str) -> None:
    row = model(name)
    ratios = {}
    for i, kind in enumerate(KINDS):
        relu = kind != "cancelling"
        o = operands(kind, i)
        ratios[kind] = o.ratio(kernel(o, row, COUNT, i, relu), row, relu)
    assert max(ratios.values()) <= 1.0, ratios
    # All kinds together must say something: a bound of no use would leave every ratio at nothing.
    assert max(ratios.values()) > 1e-4, ratios


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (1, 128), (64, 2), (3, 32)])
def test_the_bound_holds_at_other_sizes(name: str, heads: int, dim: int) -> None:
    row = model(name)
    for kind in ("gaussian", "octaves"):
        o = operands(kind, 7, heads, dim) if dim > 4 else operands("gaussian", 7, heads, dim)
        got = kernel_of_trees(o, row) if heads % 2 and heads > 1 else kernel(o, row, 60, 3)
        assert o.ratio(got, row) <= 1.0


def kernel_of_trees(o: Operands, row: AccumulatorModel) -> Array:
    """One way that every model admits for any number of heads: balanced trees, nothing fused, all roundings."""
    rng = np.random.default_rng(5)
    product = products(o, arithmetic.rounded_products(arithmetic.balanced_tree), 60, rng, early=True)
    product = arithmetic.to_bf16(product) if row.product_unit else product
    weighted = np.maximum(product, np.float32(0)) * o.weights
    score = arithmetic.balanced_tree(arithmetic.to_bf16(weighted) if row.weighted_unit else weighted, rng)
    return {0.0: lambda x: x, BF16_UNIT: arithmetic.to_bf16}.get(row.score_unit, arithmetic.to_fp16)(score)


def lost_one_by_one(rest: float, heads: int = 1) -> Operands:
    """Products 1, rest, rest, ...: each is lost when it is added to a running sum that began with 1."""
    side = np.full(DIM, np.sqrt(rest), np.float32)
    side[0] = 1
    return Operands(
        np.tile(side, (heads, 1)), np.ones(heads, np.float32), side, np.float32(1), np.ones(heads, np.float32)
    )


def in_order(a: Array, b: Array, rounding: Callable[[Array], Array] = lambda x: x) -> Array:
    """Products added from the first element on, the running sum rounded by ``rounding``."""
    running = rounding(a[..., 0] * b[..., 0])
    for i in range(1, a.shape[-1]):
        running = rounding(running + a[..., i] * b[..., i])
    return running


def test_adversarial_order_nearly_reaches_the_bound_of_any_order() -> None:
    o = lost_one_by_one(0.98 * FP32_UNIT)
    row = model("ieee-fp32")
    ratio = o.ratio(np.atleast_1d(in_order(o.query, o.key)), row)
    assert 0.9 < ratio <= 1.0, ratio


def test_adversarial_products_nearly_reach_the_bound_of_a_matrix_unit() -> None:
    o = lost_one_by_one(0.98 * 2.0**-13)
    row = model("tensor-core-fp8")
    ratio = o.ratio(fixed_unit(o, 14), row)
    assert 0.85 < ratio <= 1.0, ratio


@pytest.mark.parametrize("width", [4, 8, 16, 32, 128])
def test_wider_instructions_and_rounded_results_stay_within_the_bound_of_narrow_ones(width: int) -> None:
    row = model("tensor-core-fp16")
    adversary = lost_one_by_one(0.98 * 2.0**-23)
    assert 0.3 < adversary.ratio(fixed_unit(adversary, 24, width=width), row) <= 1.0
    for bits, kind in all_of((24, 26), ("one-sign", "octaves")):
        o = operands(kind, width)
        got = unit_kernel(o, 60, bits=bits, width=width, result_bits=24)
        assert o.ratio(got, row) <= 1.0


@pytest.mark.parametrize("width", [8, 16, 32])
def test_two_bits_more_than_float32_while_adding_stay_within_the_bound_of_float32(width: int) -> None:
    row = model("ieee-fp32")
    # Lost one by one, and sums that lose a whole last bit with every instruction.
    for rest in (0.98 * 2.0**-25, 2.0**-23 / width * 0.98):
        adversary = lost_one_by_one(rest)
        assert 0.05 < adversary.ratio(fixed_unit(adversary, 26, width=width, result_bits=24), row) <= 1.0
    for kind in KINDS[:4]:
        o = operands(kind, width)
        assert o.ratio(unit_kernel(o, 60, bits=26, width=width, result_bits=24), row) <= 1.0


def unit_kernel(o: Operands, count: int, **unit: int) -> Array:
    """Scores [count] of kernels whose matrix unit takes the elements in random order, a third for each of ``CUTS``."""
    rng = np.random.default_rng(11)
    out = np.empty(count, np.float32)
    for way, part in arithmetic.parts(count, len(CUTS)):
        dot = partial(arithmetic.matrix_unit, cut=CUTS[way], **unit)
        product = np.maximum(products(o, dot, part.stop - part.start, rng, early=False), 0)
        out[part] = arithmetic.fused_chain(product, np.broadcast_to(o.weights, product.shape), rng) * o.key_scale
    return out


def _bf16_accumulator() -> tuple[Operands, Array]:
    o = operands("one-sign", 1)
    product = in_order(o.query, o.key, arithmetic.to_bf16) * o.query_scales
    return o, np.atleast_1d((product @ o.weights) * o.key_scale)


def _bf16_weights() -> tuple[Operands, Array]:
    o = operands("one-sign", 2)
    product = np.maximum(in_order(o.query, o.key) * o.query_scales, 0)
    return o, np.atleast_1d((product @ arithmetic.to_bf16(o.weights)) * o.key_scale)


def _sequential() -> tuple[Operands, Array]:
    o = lost_one_by_one(0.98 * FP32_UNIT)
    return o, np.atleast_1d(in_order(o.query, o.key))


def _bf16_scores() -> tuple[Operands, Array]:
    o = replace(lost_one_by_one(2.0**-30), weights=np.full(1, np.float32(1 + 0.98 * BF16_UNIT)))
    return o, arithmetic.to_bf16(kernel(o, model("ieee-fp32"), 10, 0))


def _truncated_scores() -> tuple[Operands, Array]:
    o = replace(lost_one_by_one(2.0**-30), weights=np.full(1, np.float32(1 + 2.0**-7 - 2.0**-12)))
    exact = kernel(o, model("ieee-fp32"), 10, 0)
    return o, (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _bf16_head_sum() -> tuple[Operands, Array]:
    """A head of 1 and 63 whose weighted products are each lost in a bf16 running sum."""
    o = replace(lost_one_by_one(2.0**-30, HEADS), weights=np.full(HEADS, np.float32(0.98 * BF16_UNIT)))
    o.weights[0] = 1
    return o, np.atleast_1d(in_order(o.weights, np.ones(HEADS, np.float32), arithmetic.to_bf16))


def fixed_unit(o: Operands, bits: int, **unit: int) -> Array:
    """Score [1] of one head by a matrix unit that takes the elements in order and cuts toward zero."""
    shape = (1, DIM, 1)
    rng = np.random.default_rng(0)
    query, key = o.query.T.reshape(shape), o.key.reshape(shape)
    return arithmetic.matrix_unit(query, key, rng, bits=bits, shuffle=False, **unit)[0]


def _ten_bits() -> tuple[Operands, Array]:
    o = lost_one_by_one(0.98 * 2.0**-9)
    return o, fixed_unit(o, 10)


def _twenty_two_bits() -> tuple[Operands, Array]:
    o = lost_one_by_one(0.98 * 2.0**-21)
    return o, fixed_unit(o, 22, width=16)


def _cut_at_24_bits() -> tuple[Operands, Array]:
    o = lost_one_by_one(0.98 * 2.0**-23)
    return o, fixed_unit(o, 24, width=16)


OUTSIDE = {
    "bf16 running sum": ("ieee-fp32", _bf16_accumulator),
    "bf16 weights": ("ieee-fp32", _bf16_weights),
    "sequential, not a tree": ("fp32-tree", _sequential),
    "bf16 scores for fp16": ("fp16-scores", _bf16_scores),
    "scores cut, not rounded": ("bf16-scores", _truncated_scores),
    "bf16 running sum over heads": ("bf16-chain", _bf16_head_sum),
    "addends cut at 24 bits": ("ieee-fp32", _cut_at_24_bits),
    "ten bits for fourteen": ("tensor-core-fp8", _ten_bits),
    "22 bits for 24": ("tensor-core-fp16", _twenty_two_bits),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_kernel_just_outside_the_model_exceeds_the_bound(what: str) -> None:
    name, make = OUTSIDE[what]
    o, got = make()
    assert o.ratio(got, model(name)) > 1.0


def test_every_model_has_a_kernel_outside_it() -> None:
    assert {name for name, _ in OUTSIDE.values()} == set(MODELS)


def test_more_accumulator_bits_are_a_narrower_bound_and_too_few_are_refused() -> None:
    o = operands("gaussian", 0)
    row = model("tensor-core-fp8")
    bounds = [o.bound(replace(row, accumulator_bits=bits)) for bits in (10, 14, 18, 22)]
    assert all(wide > 10 * narrow for wide, narrow in pairwise(bounds))
    with pytest.raises(ValueError, match=r"`AccumulatorModel\(accumulator_bits=...\)` should be at least 8 for 128"):
        replace(row, accumulator_bits=7).dot_error(DIM)
    assert np.isfinite(replace(row, accumulator_bits=8).dot_error(DIM).norms)


def test_bound_of_no_keys_and_of_columns_past_a_row() -> None:
    o = operands("gaussian", 0)
    _, query, _ = o.exact(relu=True)
    weights = o.weights[None].astype(np.float64)
    none = np.zeros((1, 0))
    assert score_bound(Scores(none, none), query, weights, KeySizes(none, none), model("ieee-fp32")).shape == (1, 0)
    past = Scores(np.array([[-np.inf]]), np.zeros((1, 1)))
    sizes = KeySizes(np.ones((1, 1)), np.ones((1, 1)))
    assert score_bound(past, query, weights, sizes, model("bf16-scores")).tolist() == [[0.0]]

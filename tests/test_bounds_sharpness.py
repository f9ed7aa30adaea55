"""How much the bounds leave undecided: the keys near the k-th place that either side could rank first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import dequantise
from dsa_crosscheck.reference.query import query_values

TOPK = 2048


def undecided(scores: np.ndarray, bound: np.ndarray, k: int) -> int:
    """Keys of a row that some admissible scores put into the k largest and others don't."""
    low, high = scores - bound, scores + bound
    kth = np.sort(low)[-k]
    next_one = np.sort(high)[-k - 1]
    return int(((high >= kth) & (low <= next_one)).sum())


def setup(keys: int, bound: str) -> Setup:
    """One row of 64 heads x 128 dims that sees ``keys`` gaussian keys."""
    inputs = build_case("gaussian", context=keys, rows=1, topk=TOPK, geometry=Geometry(compress_ratio=1))
    return Setup(inputs, PRESETS["sglang-v4-fp8"].conventions, model(bound))


@pytest.mark.parametrize("keys", [4096, 16_384, pytest.param(65_536, marks=pytest.mark.slow)])
def test_float32_leaves_less_than_two_percent_of_k_undecided(keys: int) -> None:
    scores, bound = setup(keys, "ieee-fp32").shared_scores
    assert scores.values.shape == (1, keys)
    count = undecided(scores.values[0], bound[0], TOPK)
    assert 0 < count < 0.02 * TOPK, count


def test_a_tree_leaves_fewer_undecided_than_any_order() -> None:
    any_order, tree = (setup(4096, name).shared_scores for name in ("ieee-fp32", "fp32-tree"))
    assert (tree[1] < 0.2 * any_order[1]).all()
    assert undecided(tree[0].values[0], tree[1][0], TOPK) <= undecided(any_order[0].values[0], any_order[1][0], TOPK)


def test_a_matrix_unit_is_sharper_than_every_addend_cut_by_the_norms() -> None:
    """128 products and 4 running sums, each cut by 2^-13 |q| |k|, are a bound; this one is under half of it."""
    s = setup(4096, "tensor-core-fp8")
    scores, bound = s.shared_scores
    query = query_values(s.trace.codes, s.conventions, 128)
    reach = (np.abs(s.trace.weights) * np.linalg.norm(query, axis=-1)).sum()
    # The row's own request comes first among the keys.
    norms = np.linalg.norm(dequantise(s.trace.stored, s.conventions.key), axis=-1)[: bound.shape[1]]
    wide = 132 * 2.0**-13 * reach * norms
    assert (bound[0] < 0.45 * wide).all()
    assert undecided(scores.values[0], bound[0], TOPK) < undecided(scores.values[0], wide, TOPK)


def test_fewer_keys_are_undecided_with_every_bit_that_a_matrix_unit_keeps() -> None:
    s = setup(4096, "tensor-core-fp8")
    counts = []
    for bits in (14, 18, 22):
        scores, bound = replace(s, model=replace(s.model, accumulator_bits=bits)).shared_scores
        counts.append(undecided(scores.values[0], bound[0], TOPK))
    assert counts[0] > 5 * counts[1] > 25 * counts[2] > 0, counts
    assert counts[2] < 0.02 * TOPK

"""Overlapping pooling, against a loop in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dsa_crosscheck.reference.pool import pool

DIM = 8


def pool_by_loop(kv_score: np.ndarray, bias: np.ndarray) -> list[list[float]]:
    """One channel of one group at a time: softmax over own slots and, after the first group, overlap slots."""
    ratio, dim = bias.shape[0], bias.shape[1] // 2
    keys = []
    for group in range(len(kv_score) // ratio):
        key = []
        for d in range(dim):
            slots = []
            for phase in range(ratio):
                own = kv_score[group * ratio + phase]
                slots.append((float(own[dim + d]), float(own[3 * dim + d]) + float(bias[phase, dim + d])))
                if group:
                    before = kv_score[(group - 1) * ratio + phase]
                    slots.append((float(before[d]), float(before[2 * dim + d]) + float(bias[phase, d])))
            top = max(score for _, score in slots)
            total = math.fsum(math.exp(score - top) for _, score in slots)
            key.append(math.fsum(value * math.exp(score - top) for value, score in slots) / total)
        keys.append(key)
    return keys


def projections(tokens: int, ratio: int = 4, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(tokens)
    kv_score = (spread * rng.standard_normal((tokens, 4 * DIM))).astype(np.float32)
    return kv_score, rng.standard_normal((ratio, 2 * DIM)).astype(np.float32)


@pytest.mark.parametrize("tokens", [4, 5, 7, 8, 13])
@pytest.mark.parametrize("ratio", [2, 4])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_pool_is_the_loop(tokens: int, ratio: int, spread: float) -> None:
    kv_score, bias = projections(tokens, ratio, spread)
    got = pool(kv_score, bias)
    assert got.dtype == np.float64
    assert got.shape == (tokens // ratio, DIM)
    np.testing.assert_allclose(got, pool_by_loop(kv_score, bias), rtol=1e-12, atol=1e-12 * spread)


def test_first_group_has_no_overlap() -> None:
    """Its overlap half, and the overlap bias, change the second group alone."""
    kv_score, bias = projections(8)
    other = kv_score.copy()
    other[:4, :DIM] += 1
    other[:4, 2 * DIM : 3 * DIM] -= 1
    before, after = pool(kv_score, bias), pool(other, bias)
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1] != after[1]).all()
    bias[:, :DIM] += np.arange(4)[:, None]
    again = pool(kv_score, bias)
    np.testing.assert_array_equal(before[0], again[0])
    assert (before[1] != again[1]).all()


def test_last_group_leaves_its_overlap_half_to_the_next() -> None:
    kv_score, bias = projections(8)
    other = kv_score.copy()
    other[4:, :DIM] = 99
    np.testing.assert_array_equal(pool(kv_score, bias), pool(other, bias))


@pytest.mark.parametrize("tokens", [0, 1, 2, 3])
def test_unfinished_group_makes_no_key(tokens: int) -> None:
    kv_score, bias = projections(tokens)
    got = pool(kv_score, bias)
    assert got.shape == (0, DIM)
    assert got.dtype == np.float64


def test_trailing_tokens_are_not_read() -> None:
    kv_score, bias = projections(11)
    np.testing.assert_array_equal(pool(kv_score, bias), pool(kv_score[:8], bias))


def test_equal_scores_give_the_mean() -> None:
    kv_score, bias = np.zeros((8, 4 * DIM), np.float32), np.zeros((4, 2 * DIM), np.float32)
    kv_score[:4, :DIM] = 3
    kv_score[:, DIM : 2 * DIM] = 1
    np.testing.assert_allclose(pool(kv_score, bias), [[1.0] * DIM, [2.0] * DIM], rtol=1e-15)


@pytest.mark.parametrize("shape", [(8, 4 * DIM - 1), (8, 2 * DIM), (8,)])
def test_wrong_columns(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"`pool\(kv_score=\.\.\.\)` should be \[tokens, 32\], got"):
        pool(np.zeros(shape, np.float32), np.zeros((4, 2 * DIM), np.float32))

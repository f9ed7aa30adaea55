"""The Walsh-Hadamard transform and the lane orders."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from dsa_crosscheck.reference.hadamard import hadamard, hadamard_matrix, row_order
from dsa_crosscheck.reference.lanes import lane_permutation, random_order

SIZES = pytest.mark.parametrize("n", [1, 2, 4, 16, 32, 128])


@SIZES
def test_natural_order_is_scipys(n: int) -> None:
    np.testing.assert_array_equal(hadamard(np.eye(n), order="natural", scale="none"), scipy.linalg.hadamard(n))


@SIZES
def test_sequency_order_sorts_the_natural_rows(n: int) -> None:
    """Each output is the product with the scipy row that has as many sign changes as the output's place."""
    x = np.random.default_rng(n).standard_normal(n)
    matrix = scipy.linalg.hadamard(n).astype(np.float64)
    changes = np.array([int(np.sum(row[1:] != row[:-1])) for row in matrix])
    by_changes = np.empty_like(matrix)
    by_changes[changes] = matrix
    got = hadamard(x[None], order="sequency", scale="none")[0]
    np.testing.assert_allclose(got, by_changes @ x, rtol=0, atol=1e-12)


@SIZES
def test_sequency_rows_have_as_many_sign_changes_as_their_number(n: int) -> None:
    rows = hadamard(np.eye(n), order="sequency", scale="none").T
    assert [int(np.sum(row[1:] != row[:-1])) for row in rows] == list(range(n))


@SIZES
@pytest.mark.parametrize("order", ["natural", "sequency"])
def test_orthonormal(n: int, order: str) -> None:
    matrix = hadamard(np.eye(n), order=order, scale="orthonormal").T
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(n), rtol=0, atol=1e-14)
    np.testing.assert_allclose(matrix @ matrix, np.eye(n), rtol=0, atol=1e-14)
    np.testing.assert_allclose(matrix * np.sqrt(n), hadamard(np.eye(n), order=order, scale="none").T, rtol=1e-15)


def test_leading_axes_are_kept() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 16))
    got = hadamard(x, order="natural", scale="none")
    assert got.shape == x.shape
    np.testing.assert_allclose(got[1, 2], scipy.linalg.hadamard(16) @ x[1, 2], rtol=0, atol=1e-13)
    assert hadamard(np.zeros((0, 16)), order="natural", scale="none").shape == (0, 16)


def test_hadamard_errors() -> None:
    with pytest.raises(ValueError, match=r"`hadamard\(scale=\.\.\.\)` should be 'orthonormal' or 'none', got 'unit'"):
        hadamard(np.eye(4), order="natural", scale="unit")
    with pytest.raises(ValueError, match=r"`row_order\(order=\.\.\.\)` should be 'natural' or 'seq.* got 'dyadic'"):
        row_order(4, "dyadic")
    for n in (0, 3, 12):
        with pytest.raises(ValueError, match=rf"`hadamard_matrix\(n=\.\.\.\)` should be a power of two, got {n}"):
            hadamard_matrix(n)


def test_lane_orders_of_128() -> None:
    assert lane_permutation("lane-major", 128).tolist() == list(range(128))
    strided = [lane + 32 * step for lane in range(32) for step in range(4)]
    assert lane_permutation("strided", 128).tolist() == strided
    reversed_bits = [int(f"{i:07b}"[::-1], 2) for i in range(128)]
    assert lane_permutation("bit-reversed", 128).tolist() == reversed_bits
    changes = np.count_nonzero(np.diff(hadamard_matrix(128), axis=1), axis=1)
    assert changes[lane_permutation("sequency", 128)].tolist() == list(range(128))


def test_orders_of_ones_own() -> None:
    own = random_order(128, 3)
    assert own.tolist() == random_order(128, 3).tolist() != random_order(128, 4).tolist()
    np.testing.assert_array_equal(lane_permutation(own, 128), own)
    for wrong in (np.zeros(4, np.int64), np.arange(3), np.arange(4.0)):
        with pytest.raises(ValueError, match=r"`lane_permutation\(order=...\)` should hold each of 0 to 3 once, got"):
            lane_permutation(wrong, 4)


@pytest.mark.parametrize("order", ["lane-major", "strided", "bit-reversed", "sequency"])
@pytest.mark.parametrize("head_dim", [32, 64, 256])
def test_lane_orders_are_permutations(order: str, head_dim: int) -> None:
    got = lane_permutation(order, head_dim)
    assert got.dtype == np.int64
    assert sorted(got.tolist()) == list(range(head_dim))


def test_lane_errors() -> None:
    with pytest.raises(ValueError, match=r"`lane_permutation\(head_dim=\.\.\.\)` should be a multiple of 32, got 16"):
        lane_permutation("strided", 16)
    with pytest.raises(ValueError, match=r"`lane_permutation\(order=\.\.\.\)` should be .* got 'random'"):
        lane_permutation("random", 128)

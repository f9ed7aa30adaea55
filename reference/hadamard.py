"""Walsh-Hadamard transform over the last axis, from the matrix's definition."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dsa_crosscheck.reference.exact import float64


def hadamard(x: np.ndarray, *, order: str, scale: str) -> np.ndarray:
    """H x for ``x`` [..., n], n a power of two; float64, same shape.

    ``order``: ``natural`` (Sylvester) or ``sequency`` (rows sorted by their number of sign changes).
    ``scale``: ``orthonormal`` divides by sqrt(n), so that H is its own inverse; ``none`` does not.
    ``ValueError`` for another order or scale, or an n that is not a power of two.
    """
    n = x.shape[-1]
    if scale not in ("orthonormal", "none"):
        raise ValueError(f"`hadamard(scale=...)` should be 'orthonormal' or 'none', got {scale!r}")
    matrix = hadamard_matrix(n)[row_order(n, order)]
    return _transform(x, matrix, np.float64(np.sqrt(n) if scale == "orthonormal" else 1.0))


@functools.cache
def hadamard_matrix(n: int) -> np.ndarray:
    """The n x n Sylvester matrix: entry (i, j) is -1 to the number of ones in i & j; float64."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"`hadamard_matrix(n=...)` should be a power of two, got {n}")
    index = np.arange(n, dtype=np.uint32)
    return 1.0 - 2.0 * (np.bitwise_count(index[:, None] & index[None, :]) & 1).astype(np.float64)


def row_order(n: int, order: str) -> np.ndarray:
    """Row indices of the natural matrix in the given order, int64 [n]."""
    if order == "natural":
        return np.arange(n)
    if order == "sequency":
        return np.argsort(np.count_nonzero(np.diff(hadamard_matrix(n), axis=1), axis=1), kind="stable")
    raise ValueError(f"`row_order(order=...)` should be 'natural' or 'sequency', got {order!r}")


@float64()
def _transform(x: jax.Array, matrix: jax.Array, divisor: jax.Array) -> jax.Array:
    return jnp.matmul(x, matrix.T, precision="highest") / divisor

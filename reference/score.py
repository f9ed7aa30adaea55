"""The indexer score: sum over heads of weight x relu(query . key), streamed over key blocks."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dsa_crosscheck.reference.exact import float64, round_bf16
from dsa_crosscheck.reference.key_source import KeySource

KEY_BLOCK = 512
"""Keys a step: 16 rows x 64 heads x 512 keys of float64 are 4 MiB of temporaries."""
ROW_BLOCK = 16


@dataclass(frozen=True)
class Scores:
    """``values`` float64 [rows, max_length], -inf past a row's length.

    ``magnitude``: the same sum with absolute weights, 0 past the length: what a rounding error of
    the head sum is relative to.
    """

    values: np.ndarray
    magnitude: np.ndarray


def score(
    query: np.ndarray,
    weights: np.ndarray,
    keys: KeySource,
    request_of_row: np.ndarray,
    lengths: np.ndarray,
    *,
    relu: bool,
    rounding: str,
) -> Scores:
    """Scores of every row against the first ``lengths[row]`` keys of its request.

    ``query`` float64 [rows, heads, head_dim], ``weights`` float64 [rows, heads]. Peak temporaries
    are at most ROW_BLOCK x heads x KEY_BLOCK and do not grow with the number of keys. NaN propagates
    (relu(NaN) is NaN). ``rounding`` as ``Conventions.score_rounding``. Rows of length 0 and no rows
    at all are legal. ``ValueError`` for a negative length or an unknown rounding.
    """
    if rounding not in ("none", "fp16", "bf16", "bf16-chain"):
        raise ValueError(f"`score(rounding=...)` should be none, fp16, bf16 or bf16-chain, got {rounding!r}")
    if lengths.size and lengths.min() < 0:
        raise ValueError(f"`score(lengths=...)` should not be negative, got {lengths.min()}")
    width = int(lengths.max(initial=0))
    values = np.full((lengths.size, width), -np.inf)
    magnitude = np.zeros((lengths.size, width))
    for request in np.unique(request_of_row):
        rows = np.flatnonzero(request_of_row == request)
        shape = (_row_block(rows.size), KEY_BLOCK)
        for start in range(0, int(lengths[rows].max()), KEY_BLOCK):
            stop = min(start + KEY_BLOCK, int(lengths[rows].max()))
            block = keys.block(int(request), start, stop)
            live = rows[lengths[rows] > start]
            for first in range(0, live.size, ROW_BLOCK):
                some = live[first : first + ROW_BLOCK]
                got, size = _score_padded(query[some], weights[some], block, shape, relu, rounding)
                seen = np.arange(start, stop)[None, :] < lengths[some, None]
                values[some, start:stop] = np.where(seen, got, -np.inf)
                magnitude[some, start:stop] = np.where(seen, size, 0.0)
    return Scores(values, magnitude)


def _row_block(rows: int) -> int:
    """Rows that a request's blocks are padded to: a power of two, so that JAX compiles for a few shapes.

    It is the same for all of a request's blocks, and they have ``KEY_BLOCK`` keys: in arrays of another
    shape, the order of a sum may be another, and equal keys would no longer tie.
    """
    return min(1 << (rows - 1).bit_length(), ROW_BLOCK)


def _score_padded(
    query: np.ndarray, weights: np.ndarray, block: np.ndarray, shape: tuple[int, int], relu: bool, rounding: str
) -> tuple[np.ndarray, np.ndarray]:
    """One block, padded to ``shape``, its rows and keys."""
    rows, count = query.shape[0], block.shape[0]
    query = np.pad(query, ((0, shape[0] - rows), (0, 0), (0, 0)))
    weights = np.pad(weights, ((0, shape[0] - rows), (0, 0)))
    block = np.pad(block, ((0, shape[1] - count), (0, 0)))
    values, magnitude = _score_block(query, weights, block, relu=relu, chain=rounding == "bf16-chain")
    return _stored(values[:rows, :count], rounding), magnitude[:rows, :count]


@float64(static=("relu", "chain"))
def _score_block(
    query: jax.Array, weights: jax.Array, block: jax.Array, *, relu: bool, chain: bool
) -> tuple[jax.Array, jax.Array]:
    rows, heads, dim = query.shape
    product = (query.reshape(rows * heads, dim) @ block.T).reshape(rows, heads, -1)
    if chain:
        product = _round_bf16(product)
    if relu:
        product = jnp.maximum(product, 0.0)
    if chain:
        weighted = _round_bf16(product * weights[:, :, None])
        return _round_bf16(weighted.sum(axis=1)), jnp.abs(weighted).sum(axis=1)
    both = jnp.stack([weights, jnp.abs(weights)], axis=1)
    if relu:
        values, magnitude = jnp.moveaxis(both @ product, 1, 0)
    else:
        values, magnitude = (both[:, :1] @ product)[:, 0], (both[:, 1:] @ jnp.abs(product))[:, 0]
    return values, magnitude


def _round_bf16(x: jax.Array) -> jax.Array:
    """Through float32 to bfloat16. reduce_precision, since XLA may drop a cast there and back."""
    return jax.lax.reduce_precision(x.astype(jnp.float32), 8, 7).astype(jnp.float64)


def _stored(values: np.ndarray, rounding: str) -> np.ndarray:
    """Scores as stored. In numpy, since XLA flushes the subnormals of fp16 to zero."""
    if rounding == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float32).astype(np.float16).astype(np.float64)
    return round_bf16(values) if rounding == "bf16" else values

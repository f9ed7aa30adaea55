"""Rotary position embedding of some of a head's dims, from a table of cosines and sines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dsa_crosscheck.reference.exact import float64


def rope(x: np.ndarray, table: np.ndarray, positions: np.ndarray, *, pairing: str, dims: str) -> np.ndarray:
    """Rotate ``x`` [n, ..., head_dim] by the table rows at ``positions`` [n]; float64, same shape.

    ``table`` [positions, rope_dim] holds c0, s0, c1, s1, ...; pair i becomes (a c - b s, a s + b c).
    ``pairing``: ``interleaved`` pairs (2i, 2i + 1), ``half-split`` pairs (i, i + rope_dim / 2).
    ``dims``: the rotated rope_dim elements are the ``first`` or the ``last`` of the head.
    Position 0 is the identity only if the table says so. Raises ``ValueError`` for another pairing
    or dims, a table wider than the head, or a position outside it: JAX itself would clamp one silently.
    """
    if pairing not in ("interleaved", "half-split"):
        raise ValueError(f"`rope(pairing=...)` should be 'interleaved' or 'half-split', got {pairing!r}")
    if dims not in ("first", "last"):
        raise ValueError(f"`rope(dims=...)` should be 'first' or 'last', got {dims!r}")
    if positions.size and not (positions.min() >= 0 and positions.max() < table.shape[0]):
        raise ValueError(
            f"`rope(positions=...)` should be in [0, {table.shape[0]}), got {positions.min()} to {positions.max()}"
        )
    if table.shape[1] > x.shape[-1]:
        raise ValueError(f"`rope(table=...)` should have at most {x.shape[-1]} columns, got {table.shape[1]}")
    return _rope(x, table[positions], pairing=pairing, dims=dims)


@float64(static=("pairing", "dims"))
def _rope(x: jax.Array, rows: jax.Array, *, pairing: str, dims: str) -> jax.Array:
    width = rows.shape[-1]
    rows = rows.reshape(rows.shape[0], *(1,) * (x.ndim - 2), width // 2, 2)
    cos, sin = rows[..., 0], rows[..., 1]
    turned, kept = (x[..., :width], x[..., width:]) if dims == "first" else (x[..., -width:], x[..., :-width])
    # Both pairings are one rule on an array whose pair axis is the last or the one before it.
    axis = -1 if pairing == "interleaved" else -2
    split = (width // 2, 2) if pairing == "interleaved" else (2, width // 2)
    pairs = turned.reshape(*turned.shape[:-1], *split)
    a, b = jnp.moveaxis(pairs, axis, 0)
    turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=axis).reshape(turned.shape)
    return jnp.concatenate([turned, kept] if dims == "first" else [kept, turned], axis=-1)

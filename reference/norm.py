"""Normalisation of a pooled key: RMSNorm or LayerNorm over the last axis."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dsa_crosscheck.reference.exact import float64


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, kind: str, eps: float) -> np.ndarray:
    """Normalise ``x`` [..., dim] with ``weight`` and ``bias`` [dim]; float64 of the same shape.

    ``kind`` is ``rms`` (x / sqrt(mean(x^2) + eps) * weight; the bias is not used) or ``layer``
    (mean removed first, bias added last). An all-zero vector gives zeros (or the bias).
    ``ValueError`` for another kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"`norm(kind=...)` should be one of {tuple(_KINDS)}, got {kind!r}")
    return _KINDS[kind](x, weight, bias, np.float64(eps))


@float64()
def _rms(x: jax.Array, weight: jax.Array, bias: jax.Array, eps: jax.Array) -> jax.Array:
    del bias
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * _last_axis(weight, x)


@float64()
def _layer(x: jax.Array, weight: jax.Array, bias: jax.Array, eps: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    scale = jnp.sqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + eps)
    return centred / scale * _last_axis(weight, x) + _last_axis(bias, x)


def _last_axis(vector: jax.Array, like: jax.Array) -> jax.Array:
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


_KINDS: dict[str, Callable[..., np.ndarray]] = {"rms": _rms, "layer": _layer}

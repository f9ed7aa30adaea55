"""Float64 on the CPU, whatever JAX was told globally, and the one rounding that is a definition.

JAX without x64 turns float64 into float32 with no warning, so every stage runs inside ``float64``,
which switches x64 on for the call alone and checks the dtype of what comes out. The caller's own
JAX settings are left as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def float64(*, static: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a JAX function of float64 (or integer) arrays: jit, run on the CPU, return numpy.

    Floating inputs are converted to float64 before they reach JAX. ``static`` names keyword
    arguments that select code, not data. Raises ``TypeError`` when a floating result is not
    float64.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
                out = compiled(
                    *(_to_float64(a) for a in args),
                    **{k: v if k in static else _to_float64(v) for k, v in kwargs.items()},
                )
                return jax.tree.map(functools.partial(_checked, function.__name__), out)

        return run

    return decorate


def _to_float64(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def _checked(name: str, leaf: jax.Array) -> np.ndarray:
    array = np.asarray(leaf)
    if array.dtype.kind == "f" and array.dtype != np.float64:
        raise TypeError(f"`{name}` should return float64, got {array.dtype}")
    return array


def round_bf16(values: np.ndarray) -> np.ndarray:
    """``values`` rounded to float32, then to bfloat16 (nearest even), as float64.

    The two roundings are those of an implementation that computes in float32 and stores bfloat16.
    NaN stays NaN; magnitudes past the largest bfloat16 become infinite.
    """
    return bf16_bits_to_float64(bf16_bits(values))


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """bfloat16 bit patterns (uint16) of ``values`` through float32, ties to even; NaN is quiet."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, np.uint32(0x7FC0) | (bits >> np.uint32(16)), rounded).astype(np.uint16)


def bf16_bits_to_float64(bits: np.ndarray) -> np.ndarray:
    """Values (float64) of bfloat16 bit patterns (uint16)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)

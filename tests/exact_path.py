"""The fused store and the query path in float64 numpy, for tests; codes come with what is decided.

A float32 implementation must produce a code exactly where the float64 value is farther from a
rounding boundary than ``SLACK`` of its vector's largest value; elsewhere it may be one code off.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

SLACK = 1e-6

E4M3 = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
BF16 = np.arange(0x7F80, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float64)


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def rope_last_64(x: np.ndarray, table: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Pairs (2i, 2i+1) of the last 64 elements turned as complex numbers; ``positions`` lead ``x``."""
    out = x.astype(np.float64)
    turn = table.astype(np.float64)[positions, 0::2] + 1j * table.astype(np.float64)[positions, 1::2]
    turn = turn.reshape(*positions.shape, *(1,) * (x.ndim - positions.ndim - 1), 32)
    pairs = (out[..., -64::2] + 1j * out[..., -63::2]) * turn
    out[..., -64::2], out[..., -63::2] = pairs.real, pairs.imag
    return out


def hadamard_128(x: np.ndarray) -> np.ndarray:
    index = np.arange(128)
    parity = np.array([[bin(i & j).count("1") % 2 for j in index] for i in index])
    return x @ (1.0 - 2.0 * parity) / np.sqrt(128)


@dataclass(frozen=True)
class Codes:
    """Expected codes, whether each is decided, and the exponent bytes or float64 scales."""

    codes: np.ndarray
    decided: np.ndarray
    scales: np.ndarray

    def check(self, got: np.ndarray) -> None:
        """Equal where decided, at most one step of the magnitude off elsewhere; most are decided."""
        assert got.shape == self.codes.shape
        np.testing.assert_array_equal(got[self.decided], self.codes[self.decided])
        assert self.decided.mean() > 0.9
        sign = 1 << (8 * self.codes.itemsize - 1) if self.codes.max() > 15 else 8
        signed = [np.where(c & sign, -(c & (sign - 1)).astype(int), c.astype(int)) for c in (got, self.codes)]
        assert np.abs(signed[0] - signed[1]).max() <= 1


def nearest(
    x: np.ndarray, scale: np.ndarray, table: np.ndarray, sign: int, dtype: type, size: np.ndarray | None = None
) -> Codes:
    """Codes of x / scale in a table of magnitudes; zero and midpoints are undecided.

    ``size`` is what the error of ``x`` is relative to, by default the largest value of the vector.
    """
    scaled = np.abs(x) / scale
    middle = (table[1:] + table[:-1]) / 2
    code = np.searchsorted(middle, scaled)
    edges = np.concatenate([[0.0], middle, [np.inf]])
    gap = np.minimum(scaled - edges[code], edges[code + 1] - scaled)
    slack = SLACK * (np.abs(x).max(-1, keepdims=True) if size is None else size) / scale
    return Codes((code | np.signbit(x) * sign).astype(dtype), gap > slack, scale)


def fp8(x: np.ndarray, *, power_of_two: bool, floor: float = 1e-4, group: int = 128) -> Codes:
    grouped = x.reshape(*x.shape[:-1], -1, group)
    scale = np.maximum(np.abs(grouped).max(-1, keepdims=True), floor) / 448
    if power_of_two:
        scale = ceil_power(scale)
    codes = nearest(grouped, scale, E4M3, 0x80, np.uint8)
    return Codes(codes.codes.reshape(x.shape), codes.decided.reshape(x.shape), scale[..., 0])


def fp4(x: np.ndarray, *, negative_zero: bool, floor: float = 1e-4) -> Codes:
    grouped = x.reshape(*x.shape[:-1], 4, 32)
    scale = ceil_power(np.maximum(np.abs(grouped).max(-1, keepdims=True), floor) / 6)
    codes = nearest(grouped, scale, E2M1, 8, np.uint8)
    values = codes.codes if negative_zero else np.where(codes.codes == 8, 0, codes.codes).astype(np.uint8)
    return Codes(values.reshape(x.shape), codes.decided.reshape(x.shape), scale[..., 0])


def bf16(x: np.ndarray, size: np.ndarray | None = None) -> Codes:
    return nearest(x, np.ones((*x.shape[:-1], 1)), BF16, 0x8000, np.uint16, size)


def pair_size(x: np.ndarray) -> np.ndarray:
    """Largest magnitude of each pair (2i, 2i+1), for both: what an error after RoPE is relative to."""
    return np.abs(x).reshape(*x.shape[:-1], -1, 2).max(-1).repeat(2, axis=-1)


def ceil_power(x: np.ndarray) -> np.ndarray:
    fraction, exponent = np.frexp(x)
    # A scale within float32 rounding of a power of two could go either way; tests avoid it.
    assert (np.abs(fraction - 0.5) > 1e-6).all()
    return np.ldexp(1.0, exponent)


def exponent_bytes(scale: np.ndarray) -> np.ndarray:
    return (np.log2(scale).round() + 127).astype(np.uint8)


def unpack_nibbles(packed: np.ndarray) -> np.ndarray:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)

"""Float32 vectors to stored codes and scales, and back.

Everything here is numpy: JAX on a CPU flushes denormals and its exp2 and log2 are not exact on
powers of two, so scales are built from exponent bits. Quantisation starts from float32, since a
float64 cast to 8 bits would round twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.exact import bf16_bits, bf16_bits_to_float64
from dsa_crosscheck.reference.formats import Format

_ONE = np.float32(1.0)


@dataclass(frozen=True)
class Quantised:
    """Codes, one an element, and the scale of each group.

    ``codes`` [..., head_dim]: uint8 (fp8, and fp4 unpacked), uint16 (bf16) or uint32 (exact: the
    float32 bits). ``scales`` [..., groups] float32; groups is 0 for formats without a scale.
    """

    codes: np.ndarray
    scales: np.ndarray


def quantise(values: np.ndarray, codec: Codec) -> Quantised:
    """Encode ``values`` [..., head_dim] (rounded to float32 first) by ``codec``.

    Magnitudes past the format's largest are clamped before the cast. NaN becomes the format's NaN
    code (e2m1 has none: ``ValueError``). -0.0 keeps its sign where the format and the codec's tie
    rule have one. An all-zero group gets the scale of the amax floor. Empty input is legal.
    """
    x = np.ascontiguousarray(values, dtype=np.float32)
    spec = codec.spec
    if spec.bits == 32:
        return Quantised(x.view(np.uint32), _no_scales(x))
    if spec.bits == 16:
        return Quantised(bf16_bits(x), _no_scales(x))
    if not codec.scale_bytes:
        return Quantised(encode(x, spec, codec.ties or "even"), _no_scales(x))
    groups = codec.groups(x.shape[-1])
    grouped = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    scales = group_scales(np.abs(grouped).max(axis=-1, initial=0.0), codec)
    steps = scales[..., None]
    # A power of two divides exactly, so both ways of applying it are one number.
    ratio = grouped * (_ONE / steps) if codec.apply == "reciprocal" else grouped / steps
    return Quantised(encode(ratio, spec, codec.ties or "even").reshape(x.shape), scales)


def group_scales(amax: np.ndarray, codec: Codec) -> np.ndarray:
    """Scale (float32) of groups whose largest magnitude is ``amax`` (float32), every step in float32."""
    floor = np.float32(codec.amax_floor)
    largest = np.float32(codec.spec.max_value)
    if codec.floor_on == "amax":
        amax = np.maximum(amax, floor)
    scale = amax / largest if codec.scale_from == "divide" else amax * (_ONE / largest)
    if codec.floor_on == "scale":
        scale = np.maximum(scale, floor)
    return ceil_power_of_two(scale) if codec.scale == "power-of-two" else scale


def ceil_power_of_two(x: np.ndarray) -> np.ndarray:
    """Smallest normal power of two not below ``x`` (positive float32), from its exponent bits.

    A power of two maps to itself; one ulp above it doubles. Below 2^-126 gives 2^-126, above 2^127
    gives 2^127.
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    exponent = (bits >> np.uint32(23)) + ((bits & np.uint32(0x7FFFFF)) != 0).astype(np.uint32)
    return (np.clip(exponent, 1, 254).astype(np.uint32) << np.uint32(23)).view(np.float32)


def encode(x: np.ndarray, spec: Format, ties: str) -> np.ndarray:
    """Codes (uint8) of ``x`` (float32, already scaled) in a format of at most 8 bits.

    ``ties``: a value midway between two codes goes to the ``even`` one or ``toward-zero``.
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    upper = (bits >> np.uint32(15)) & np.uint32(0xFFFE)
    code = _codes_of_sizes(spec, ties)[upper | ((bits & np.uint32(0xFFFF)) != 0)]
    sign = np.signbit(x).astype(np.uint8) << np.uint8(spec.bits - 1)
    # Toward-zero encoders count thresholds and sign only what is left; 0x80 is NaN in e4m3fnuz.
    unsigned_zero = ties == "toward-zero" or (1 << (spec.bits - 1)) in spec.nan_codes
    code |= np.where((code == 0) & unsigned_zero, np.uint8(0), sign)
    nan = np.isnan(x)
    if nan.any():
        if not spec.nan_codes:
            raise ValueError(f"`encode(x=...)` should hold no NaN for {spec.name}, which has no code for it")
        code[nan] = spec.nan_codes[0]
    return code


@cache
def _codes_of_sizes(spec: Format, ties: str) -> np.ndarray:
    """Codes (uint8 [65536]) of magnitudes by the upper 15 bits of a float32's size and whether a lower one is set.

    These decide: a midpoint of codes of at most 8 bits has none of the lower 16 bits.
    """
    upper = np.arange(1 << 15, dtype=np.uint32) << np.uint32(16)
    magnitude = np.stack([upper, upper | np.uint32(1)], axis=1).reshape(-1).view(np.float32)
    midpoints = code_midpoints(spec).astype(np.float32)
    code = np.searchsorted(midpoints, magnitude, side="left").astype(np.uint8)
    if ties == "even":
        # At a tie `code` is the lower neighbour; an odd one moves up to the even one.
        tied = (code < midpoints.size) & (midpoints[np.minimum(code, midpoints.size - 1)] == magnitude)
        code += (tied & (code & 1 == 1)).astype(np.uint8)
    return code


def code_midpoints(spec: Format) -> np.ndarray:
    """Midpoints between neighbouring magnitudes, float64; exact in float32 as well."""
    return (spec.magnitudes[1:] + spec.magnitudes[:-1]) / 2


def code_values(codes: np.ndarray, spec: Format) -> np.ndarray:
    """Values (float64) of codes, scale not applied. NaN codes give NaN."""
    if spec.bits == 32:
        return codes.view(np.float32).astype(np.float64)
    if spec.bits == 16:
        return bf16_bits_to_float64(codes)
    return spec.decode_table[codes]


def dequantise(quantised: Quantised, codec: Codec) -> np.ndarray:
    """Values (float64) with the scales applied: exact, since code times scale needs under 53 bits."""
    values = code_values(quantised.codes, codec.spec)
    if not codec.scale_bytes:
        return values
    shape = (*quantised.scales.shape, values.shape[-1] // quantised.scales.shape[-1])
    return (values.reshape(shape) * quantised.scales[..., None].astype(np.float64)).reshape(values.shape)


def _no_scales(x: np.ndarray) -> np.ndarray:
    return np.zeros((*x.shape[:-1], 0), dtype=np.float32)

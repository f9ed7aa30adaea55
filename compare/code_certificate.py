"""Are stored codes and scales those that an admissible float32 computation could have stored?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.formats import Format
from dsa_crosscheck.reference.models import FP32_UNIT
from dsa_crosscheck.reference.quantise import (
    Quantised,
    code_midpoints,
    code_values,
    encode,
    group_scales,
    quantise,
)

SCALE_SLACK = 4 * FP32_UNIT
"""Relative freedom of a float32 scale beyond its amax: two ulp, for an approximate division."""


@dataclass(frozen=True)
class CodeCertificate:
    """Judgement of codes, elementwise over ``codes``' shape.

    ``steps``: distance in codes from the reference's (int64). ``explained``: the float64 value lies
    within its bound of every rounding boundary between the two codes. ``factor``: smallest
    multiple of the bound that would explain the element (0 where equal and explained, inf where
    none does): explained and a factor of at most 1 are the same.
    """

    steps: np.ndarray
    explained: np.ndarray
    factor: np.ndarray


@dataclass(frozen=True)
class ScaleCertificate:
    """Judgement of scales: admissible interval [``low``, ``high``] per group, and who lies in it."""

    low: np.ndarray
    high: np.ndarray
    explained: np.ndarray


def certify_scales(values: np.ndarray, bound: np.ndarray, scales: np.ndarray, codec: Codec) -> ScaleCertificate:
    """Judge ``scales`` [..., groups] for float64 ``values`` [..., head_dim] known to ``bound``.

    The largest magnitude of a group lies between the largest of |v| - b and of |v| + b; the codec's
    own rule, monotone, turns both ends into scales. A power of two must be exactly one of those
    between the ends.
    """
    groups = scales.shape[-1]
    grouped = (*values.shape[:-1], groups, values.shape[-1] // groups)
    magnitude = np.abs(values).reshape(grouped)
    spread = bound.reshape(grouped)
    low = group_scales(np.maximum(magnitude - spread, 0).max(axis=-1).astype(np.float32), codec)
    high = group_scales((magnitude + spread).max(axis=-1).astype(np.float32), codec)
    if codec.scale == "power-of-two":
        mantissa, _ = np.frexp(scales)
        explained = (scales >= low) & (scales <= high) & (mantissa == 0.5)
        return ScaleCertificate(low.astype(np.float64), high.astype(np.float64), explained)
    low64, high64 = low.astype(np.float64) * (1 - SCALE_SLACK), high.astype(np.float64) * (1 + SCALE_SLACK)
    return ScaleCertificate(low64, high64, (scales >= low64) & (scales <= high64))


def certify_codes(
    values: np.ndarray, bound: np.ndarray, got: Quantised, reference: Quantised, codec: Codec
) -> CodeCertificate:
    """Judge ``got.codes`` for float64 ``values`` [..., head_dim] known to ``bound``.

    The candidate's own scales are used, so a code is not blamed for its scale. Codes of the two
    zeros are the same value and cost no step; a NaN code is never explained.
    """
    target, slack = _scaled(values, bound, got, codec)
    order = code_order(got.codes, codec.spec)
    steps = np.abs(order - code_order(reference.codes, codec.spec))
    explained = _admits(target, slack, order, codec)
    factor = np.where(steps == 0, 0.0, np.inf)
    nan = _is_nan(got.codes, codec.spec)
    differ = np.flatnonzero((((steps > 0) | ~explained) & ~nan).reshape(-1))
    if differ.size:
        some = [array.reshape(-1)[differ] for array in (target, slack, order, explained)]
        factor.reshape(-1)[differ] = _smallest_factor(some[0], some[1], some[2], some[3], codec)
    return CodeCertificate(steps, explained & ~nan, np.where(nan, np.inf, factor))


def code_order(codes: np.ndarray, spec: Format) -> np.ndarray:
    """Codes as int64 that ascend with the value; both zeros are 0."""
    sign = 1 << (spec.bits - 1)
    magnitude = (codes & (sign - 1)).astype(np.int64)
    return np.where(codes & sign, -magnitude, magnitude)


def _scaled(values: np.ndarray, bound: np.ndarray, got: Quantised, codec: Codec) -> tuple[np.ndarray, np.ndarray]:
    """Values and bounds in units of the code table: divided by the candidate's scale."""
    if not codec.scale_bytes:
        return values, np.broadcast_to(bound, values.shape)
    scale = np.repeat(got.scales.astype(np.float64), values.shape[-1] // got.scales.shape[-1], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        target = np.nan_to_num(values / scale, nan=0.0)
        # The reciprocal and the product round once each, the quotient once; powers of two never.
        roundings = {"reciprocal": 2, "divide": 1, None: 0}[codec.apply]
        slack = np.nan_to_num(bound / scale, nan=0.0) + roundings * FP32_UNIT * np.abs(target)
    return target, slack


def _admits(target: np.ndarray, slack: np.ndarray, order: np.ndarray, codec: Codec) -> np.ndarray:
    return (_order_of(target - slack, codec) <= order) & (order <= _order_of(target + slack, codec))


def _order_of(values: np.ndarray, codec: Codec) -> np.ndarray:
    """Order of the code that ``values``, already scaled, are rounded to."""
    with np.errstate(over="ignore"):
        x = values.astype(np.float32)
    if codec.spec.bits <= 8:
        return code_order(encode(x, codec.spec, codec.ties or "even"), codec.spec)
    return code_order(quantise(x, codec).codes, codec.spec)


def _smallest_factor(
    target: np.ndarray, slack: np.ndarray, order: np.ndarray, explained: np.ndarray, codec: Codec
) -> np.ndarray:
    """Smallest f such that some value within f * slack of the target has this code: distance / slack.

    The distance leaves out that values are rounded to float32 first and whom a midpoint belongs to;
    ``explained`` does not, and decides on which side of 1 the factor lies.
    """
    low, high = _code_interval(order, codec)
    distance = np.maximum(np.maximum(low - target, target - high), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = np.where(distance > 0, distance / slack, 0.0)
    return np.where(explained, np.minimum(factor, 1.0), np.maximum(factor, np.nextafter(1.0, 2.0)))


def _code_interval(order: np.ndarray, codec: Codec) -> tuple[np.ndarray, np.ndarray]:
    """Scaled values that are rounded to the code of each order, float64 ends included."""
    size = np.abs(order)
    low, high = (_boundary(size - 1, codec.spec), _boundary(size, codec.spec))
    low = np.where(size == 0, -high, low)
    return np.where(order < 0, -high, low), np.where(order < 0, -low, high)


def _boundary(below: np.ndarray, spec: Format) -> np.ndarray:
    """Midpoint between the magnitudes ``below`` and ``below`` + 1; inf past the largest one."""
    below = np.maximum(below, 0)
    if spec.bits <= 8:
        midpoints = np.append(code_midpoints(spec), np.inf)
        return midpoints[np.minimum(below, midpoints.size - 1)]
    dtype = np.uint16 if spec.bits == 16 else np.uint32
    with np.errstate(invalid="ignore"):
        middle = (code_values(below.astype(dtype), spec) + code_values((below + 1).astype(dtype), spec)) / 2
    return np.where(np.isnan(middle), np.inf, middle)


def _is_nan(codes: np.ndarray, spec: Format) -> np.ndarray:
    if spec.bits <= 8:
        return np.isin(codes, spec.nan_codes)
    exponent, mantissa = (0x7F800000, 0x7FFFFF) if spec.bits == 32 else (0x7F80, 0x7F)
    return (codes & exponent == exponent) & (codes & mantissa != 0)

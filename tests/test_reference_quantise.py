"""Scales, codes and dequantisation of whole vectors, against statements made with math.frexp and plain floats."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.formats import FORMATS
from dsa_crosscheck.reference.presets import PRESETS, TINY
from dsa_crosscheck.reference.quantise import ceil_power_of_two, dequantise, group_scales, quantise
from dsa_crosscheck.reference.record import ue8m0_values

FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
FP8_POW2 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")
FP4 = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even")
CODECS = {f"{n} {operand}": getattr(p.conventions, operand) for n, p in PRESETS.items() for operand in ("key", "query")}


def least_power_of_two(x: float) -> float:
    """Smallest normal power of two not below positive ``x``: frexp gives x = m 2^e with 1/2 <= m < 1."""
    mantissa, exponent = math.frexp(x)
    exponent -= mantissa == 0.5
    return math.ldexp(1.0, min(max(exponent, -126), 127))


def powers_and_neighbours(low: int, high: int) -> np.ndarray:
    x = np.ldexp(np.float32(1), np.arange(low, high + 1)).astype(np.float32)
    return np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))])


def test_ceil_power_of_two_at_every_power() -> None:
    x = powers_and_neighbours(-149, 127)
    x = x[x > 0]
    np.testing.assert_array_equal(ceil_power_of_two(x), [least_power_of_two(float(v)) for v in x])


@pytest.mark.parametrize("codec", [FP8_POW2, FP4], ids=["fp8", "fp4"])
def test_power_of_two_scales_at_every_power(codec: Codec) -> None:
    """amax on max_value * 2^e and one float32 ulp either side, including those under the floor."""
    largest = codec.spec.max_value
    base = powers_and_neighbours(-100, 100)
    amax = np.concatenate([np.float32(largest) * base[: base.size // 3], base])
    amax = np.concatenate([amax, np.nextafter(amax, np.float32(0)), np.nextafter(amax, np.float32(np.inf))])
    floor = float(np.float32(1e-4))
    quotients = [float(np.float32(max(float(a), floor) / largest)) for a in amax]
    np.testing.assert_array_equal(group_scales(amax, codec), [least_power_of_two(q) for q in quotients])


@pytest.mark.parametrize("largest", [spec.max_value for spec in FORMATS.values() if spec.group])
def test_divide_and_reciprocal_round_up_to_one_power_of_two(largest: float) -> None:
    """Why ``scale_from`` is no field of a power-of-two scale: every mantissa, at ordinary and least exponents."""
    one, divisor = np.float32(1), np.float32(largest)
    for exponent in (1, 113, 135):
        amax = (np.arange(1 << 23, dtype=np.uint32) | np.uint32(exponent << 23)).view(np.float32)
        by_quotient, by_reciprocal = ceil_power_of_two(amax / divisor), ceil_power_of_two(amax * (one / divisor))
        assert (by_quotient == by_reciprocal).all()


@pytest.mark.parametrize("floor_on", ["amax", "scale"])
@pytest.mark.parametrize("floor", [1e-4, 1e-10, TINY])
@pytest.mark.parametrize("scale", ["fp32", "power-of-two"])
def test_floor_of_an_all_zero_group(scale: str, floor: float, floor_on: str) -> None:
    codec = Codec("fp8-e4m3fn", "fp32", floor, floor_on, "divide", "divide").with_field("scale", scale)
    floor32 = float(np.float32(floor))
    expected = float(np.float32(floor32 / 448)) if floor_on == "amax" else floor32
    if scale == "power-of-two":
        expected = least_power_of_two(expected)
    got = quantise(np.zeros((1, 128)), codec)
    assert got.scales.tolist() == [[expected]]
    assert (got.codes == 0).all()


@pytest.mark.parametrize(("floor_on", "byte"), [("amax", 112), ("scale", 114)])
def test_fp4_floor_bytes(floor_on: str, byte: int) -> None:
    """1e-4 under the maximum or under the quotient: the two exponents that implementations store for zeros."""
    codec = FP4.with_field("floor_on", floor_on)
    scale = quantise(np.zeros((1, 32)), codec).scales
    assert (scale.view(np.uint32) >> 23).tolist() == [[byte]]


def test_official_fp4_floor_is_the_least_normal_scale() -> None:
    scale = quantise(np.zeros((1, 32)), FP4.with_field("amax_floor", TINY)).scales
    assert (scale.view(np.uint32) >> 23).tolist() == [[1]]


def test_fp32_scale_divides_or_multiplies() -> None:
    amax = np.linspace(1, 2, 1001, dtype=np.float32)
    divided = group_scales(amax, FP8)
    multiplied = group_scales(amax, FP8.with_field("scale_from", "reciprocal"))
    inverse = np.float32(1 / 448)
    assert divided.tolist() == [float(np.float32(float(a) / 448)) for a in amax]
    assert multiplied.tolist() == [float(np.float32(float(a) * float(inverse))) for a in amax]
    assert (divided != multiplied).any()


def test_apply_divides_or_multiplies_by_the_rounded_reciprocal() -> None:
    """Elements near every rounding boundary of fp8, where one ulp of the quotient decides the code."""
    scale = np.linspace(0.1, 0.2, 20, dtype=np.float32)[:, None]
    midpoints = (FP8.spec.magnitudes[1:] + FP8.spec.magnitudes[:-1]) / 2
    x = np.zeros((20, 128), np.float32)
    x[:, :126] = midpoints.astype(np.float32) * scale
    x[:, 127:] = np.float32(448) * scale
    by_reciprocal, by_quotient = (quantise(x, FP8.with_field("apply", how)) for how in ("reciprocal", "divide"))
    s = by_quotient.scales.astype(np.float64)
    inverse = (1 / s).astype(np.float32).astype(np.float64)
    dtype = ml_dtypes.float8_e4m3fn
    divided = np.clip((x / s).astype(np.float32), -448, 448).astype(dtype)
    multiplied = np.clip((x * inverse).astype(np.float32), -448, 448).astype(dtype)
    np.testing.assert_array_equal(by_quotient.codes, divided.view(np.uint8))
    np.testing.assert_array_equal(by_reciprocal.codes, multiplied.view(np.uint8))
    assert (by_quotient.codes != by_reciprocal.codes).any()


def test_unit_scale_clamps_and_casts() -> None:
    codec = Codec("fp8-e4m3fn", "unit")
    got = quantise(np.array([[1.0625, 448.0, 1e9, -1e9, -0.0, 0.3]]), codec)
    assert got.scales.shape == (1, 0)
    assert dequantise(got, codec).tolist() == [[1.0, 448.0, 448.0, -448.0, -0.0, 0.3125]]


def test_quantise_starts_from_float32() -> None:
    """1 + 2^-4 + 2^-40 is a tie once it is a float32, and so goes to even."""
    codes = quantise(np.array([[1.0625 + 2.0**-40]]), Codec("fp8-e4m3fn", "unit"))
    assert dequantise(codes, Codec("fp8-e4m3fn", "unit")).item() == 1.0


def test_groups_have_their_own_scales() -> None:
    x = np.repeat(np.array([1.0, 8.0, 64.0, 0.0]), 32)[None]
    got = quantise(x, FP4)
    assert got.scales.shape == (1, 4)
    assert got.scales[0, :3].tolist() == [0.25, 2.0, 16.0]
    np.testing.assert_array_equal(dequantise(got, FP4), x)


def test_a_vector_shorter_than_a_group_is_one_group() -> None:
    assert quantise(np.ones((3, 32)), FP8).scales.shape == (3, 1)


def test_nan_reaches_every_code_of_its_group() -> None:
    x = np.ones((2, 128))
    x[0, 5] = np.nan
    got = dequantise(quantise(x, FP8), FP8)
    assert np.isnan(got[0]).all()
    assert not np.isnan(got[1]).any()


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_empty_input_is_legal(codec: Codec) -> None:
    got = quantise(np.zeros((0, 128)), codec)
    assert got.codes.shape == (0, 128)
    assert got.scales.shape == (0, codec.groups(128))
    assert dequantise(got, codec).shape == (0, 128)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_dequantised_values_are_within_half_a_step(codec: Codec) -> None:
    x = np.random.default_rng(5).standard_normal((50, 128)).astype(np.float32)
    got = quantise(x, codec)
    back = dequantise(got, codec)
    scales = got.scales if codec.scale_bytes else np.ones((50, 1))
    largest = np.repeat(scales, 128 // scales.shape[1], axis=1).astype(np.float64)
    half_step = {"exact": 0, "bf16": 2.0**-8, "fp8-e4m3fn": 2.0**-4, "fp4-e2m1": 0.25}[codec.format]
    least = {"fp8-e4m3fn": 2.0**-10, "fp4-e2m1": 0.25}.get(codec.format, 0.0)
    room = np.maximum(half_step * np.abs(x.astype(np.float64)), least * largest) * (1 + 1e-6)
    assert (np.abs(back - x) <= room).all()


def test_ue8m0_bytes() -> None:
    values = ue8m0_values(np.arange(256, dtype=np.uint8))
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(values, expected)
    assert values[0] == math.ldexp(1, -127)
    assert np.isnan(values[255])

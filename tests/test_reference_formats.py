"""Every code of the small formats, and bfloat16, against gfloat and ml_dtypes."""

from __future__ import annotations

import gfloat
import ml_dtypes
import numpy as np
import pytest
from gfloat.formats import format_info_bfloat16, format_info_ocp_e2m1, format_info_ocp_e4m3, format_info_p3109

from dsa_crosscheck.reference.exact import bf16_bits, bf16_bits_to_float64, round_bf16
from dsa_crosscheck.reference.formats import E2M1, E4M3FN, E4M3FNUZ, FORMATS, Format
from dsa_crosscheck.reference.quantise import code_midpoints, code_values, encode

# A signed 8-bit P3109 format of precision 4 with no infinities has the codes of e4m3fnuz.
GFLOAT = {
    E4M3FN: format_info_ocp_e4m3,
    E4M3FNUZ: format_info_p3109(8, 4, domain=gfloat.Domain.Finite),
    E2M1: format_info_ocp_e2m1,
}
ML_DTYPE = {
    E4M3FN: ml_dtypes.float8_e4m3fn,
    E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    E2M1: ml_dtypes.float4_e2m1fn,
}
SMALL = pytest.mark.parametrize("spec", ML_DTYPE, ids=lambda spec: spec.name)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def neighbourhood(values: np.ndarray) -> np.ndarray:
    """``values`` with the float32 just below and just above each, and all of them negated."""
    x = values.astype(np.float32)
    near = np.concatenate([x, np.nextafter(x, np.float32(-np.inf)), np.nextafter(x, np.float32(np.inf))])
    return np.concatenate([near, -near])


def every_decision(spec: Format) -> np.ndarray:
    """Every value, every rounding boundary and one float32 ulp either side; past the end; every size of float32."""
    outside = spec.max_value * np.array([1 + 2**-23, 33 / 32, 17 / 16, 1.5, 1e9])
    powers = np.ldexp(1.0, np.arange(-149, 128))
    return np.concatenate([neighbourhood(v) for v in (spec.magnitudes, code_midpoints(spec), outside, powers)])


@SMALL
def test_decode_table_is_gfloats(spec: Format) -> None:
    codes = np.arange(1 << spec.bits)
    np.testing.assert_array_equal(spec.decode_table, gfloat.decode_ndarray(GFLOAT[spec], codes))
    zero = spec.decode_table == 0
    expected = np.signbit(gfloat.decode_ndarray(GFLOAT[spec], codes))
    np.testing.assert_array_equal(np.signbit(spec.decode_table)[zero], expected[zero])


@SMALL
def test_decode_table_is_ml_dtypes(spec: Format) -> None:
    codes = np.arange(1 << spec.bits, dtype=np.uint8)
    np.testing.assert_array_equal(spec.decode_table, codes.view(ML_DTYPE[spec]).astype(np.float64))
    np.testing.assert_array_equal(code_values(codes, spec), spec.decode_table)


@SMALL
def test_largest_magnitude(spec: Format) -> None:
    assert spec.magnitudes.max() == spec.max_value == float(ml_dtypes.finfo(ML_DTYPE[spec]).max)
    assert (np.diff(spec.magnitudes) > 0).all()


def test_nan_codes() -> None:
    assert np.flatnonzero(np.isnan(E4M3FN.decode_table)).tolist() == [0x7F, 0xFF]
    assert np.flatnonzero(np.isnan(E4M3FNUZ.decode_table)).tolist() == [0x80]
    assert not np.isnan(E2M1.decode_table).any()


@SMALL
def test_every_code_survives_decode_and_encode(spec: Format) -> None:
    codes = np.array([c for c in range(1 << spec.bits) if c not in spec.nan_codes], np.uint8)
    np.testing.assert_array_equal(encode(spec.decode_table[codes].astype(np.float32), spec, "even"), codes)


@SMALL
def test_ties_to_even_is_gfloats(spec: Format) -> None:
    """Nearest even with the clamp, over all decisions: ours compared code by code."""
    x = every_decision(spec)
    rounded = gfloat.round_ndarray(GFLOAT[spec], x.astype(np.float64), sat=True)
    got = encode(x, spec, "even")
    np.testing.assert_array_equal(got, gfloat.encode_ndarray(GFLOAT[spec], rounded))


@SMALL
def test_ties_to_even_is_ml_dtypes(spec: Format) -> None:
    x = every_decision(spec)
    clamped = np.clip(x, np.float32(-spec.max_value), np.float32(spec.max_value))
    np.testing.assert_array_equal(encode(x, spec, "even"), clamped.astype(ML_DTYPE[spec]).view(np.uint8))


@SMALL
def test_even_at_exact_midpoints(spec: Format) -> None:
    """Stated apart from both libraries: at a midpoint the code with a zero last bit wins."""
    codes = encode(code_midpoints(spec).astype(np.float32), spec, "even")
    lower = np.arange(codes.size)
    np.testing.assert_array_equal(codes, lower + lower % 2)


def test_toward_zero_counts_thresholds_strictly_exceeded() -> None:
    x = every_decision(E2M1)
    thresholds = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    expected = [sum(abs(float(v)) > t for t in thresholds) for v in x]
    signed = [code | 8 if v < 0 and code else code for v, code in zip(x, expected, strict=True)]
    np.testing.assert_array_equal(encode(x, E2M1, "toward-zero"), np.array(signed, np.uint8))


def test_tie_rules_differ_only_at_odd_midpoints_and_negative_zero() -> None:
    x = every_decision(E2M1)
    even, toward_zero = (encode(x, E2M1, ties) for ties in ("even", "toward-zero"))
    differ = set(np.abs(x[(even & 7) != (toward_zero & 7)]).tolist())
    assert differ == {0.75, 1.75, 3.5}
    assert set(even[even != toward_zero].tolist()) == {8, 2, 4, 6, 2 | 8, 4 | 8, 6 | 8}


def test_negative_zero() -> None:
    zeros = f32(0.0, -0.0, -1e-30)
    assert encode(zeros, E4M3FN, "even").tolist() == [0, 0x80, 0x80]
    assert encode(zeros, E4M3FNUZ, "even").tolist() == [0, 0, 0]
    assert encode(zeros, E2M1, "even").tolist() == [0, 8, 8]
    assert encode(zeros, E2M1, "toward-zero").tolist() == [0, 0, 0]


@SMALL
def test_infinities_clamp(spec: Format) -> None:
    top = (1 << (spec.bits - 1)) - 1 - (spec is E4M3FN)
    assert encode(f32(np.inf, -np.inf), spec, "even").tolist() == [top, top | 1 << (spec.bits - 1)]


def test_nan() -> None:
    nans = np.array([np.nan, -np.nan], np.float32)
    assert np.isnan(code_values(encode(nans, E4M3FN, "even"), E4M3FN)).all()
    assert encode(nans, E4M3FNUZ, "even").tolist() == [0x80, 0x80]
    with pytest.raises(ValueError, match=r"`encode\(x=\.\.\.\)` should hold no NaN for fp4-e2m1"):
        encode(nans, E2M1, "even")


def bf16_decisions() -> np.ndarray:
    """Around every 257th bfloat16 and its upper midpoint, every exponent's ends, and overflow."""
    exponents = np.arange(0, 0x7F80, 0x80, dtype=np.uint32)
    bits = np.unique(np.concatenate([np.arange(0, 0x7F80, 257, dtype=np.uint32), exponents, exponents + 0x7F]))
    values = (bits << np.uint32(16)).view(np.float32)
    midpoints = (bits << np.uint32(16) | np.uint32(0x8000)).view(np.float32)
    return np.concatenate([neighbourhood(values), neighbourhood(midpoints), f32(np.inf, -np.inf, 0.0, -0.0)])


def test_bf16_bits_are_ml_dtypes() -> None:
    x = bf16_decisions()
    x = x[~np.isnan(x)]
    np.testing.assert_array_equal(bf16_bits(x), x.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_bf16_ties_go_to_even() -> None:
    lower = np.arange(0x3F80, 0x4080, dtype=np.uint32)
    midpoints = (lower << np.uint32(16) | np.uint32(0x8000)).view(np.float32)
    np.testing.assert_array_equal(bf16_bits(midpoints), lower + lower % 2)


def test_bf16_overflow_and_nan() -> None:
    largest = float(np.finfo(np.float32).max)
    assert bf16_bits(f32(largest, -largest)).tolist() == [0x7F80, 0xFF80]
    payload = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(bf16_bits_to_float64(bf16_bits(payload))).all()
    assert (bf16_bits(payload) >> np.uint16(15)).tolist() == [0, 1, 0, 1]


def test_bf16_rounds_through_float32() -> None:
    """A float64 just above a bfloat16 midpoint lands on it in float32, and then goes to even."""
    assert round_bf16(np.array([1 + 2.0**-8 + 2.0**-40])) == 1.0
    assert round_bf16(np.array([1 + 2.0**-8 + 2.0**-23])) == 1 + 2.0**-7


def test_bf16_values_are_gfloats() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        values = bf16_bits_to_float64(bits)
    np.testing.assert_array_equal(values, gfloat.decode_ndarray(format_info_bfloat16, bits))


def test_exact_values_are_float32() -> None:
    x = f32(1.5, -0.0, 1e-45, np.inf, np.nan)
    got = code_values(x.view(np.uint32), FORMATS["exact"])
    np.testing.assert_array_equal(got.astype(np.float32).view(np.uint32), x.view(np.uint32))

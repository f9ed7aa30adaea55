"""The kernels' conversions against ml_dtypes and tables, around every rounding boundary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dsa_crosscheck.cuda_impl.build import load_emulated

KINDS = {"bf16": 0, "e4m3fn": 1, "e2m1 even": 2, "e2m1 toward-zero": 3, "ue8m0": 4}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.fixture(scope="module")
def probe() -> Any:
    return load_emulated([Path(__file__).parent / "probes" / "rounding_probe.cu"])


def convert(probe: Any, kind: str, x: np.ndarray) -> np.ndarray:
    out = np.zeros(x.shape, np.uint32)
    probe.convert(np.ascontiguousarray(x, np.float32), out, KINDS[kind])
    return out


def around(points: np.ndarray, steps: int = 16) -> np.ndarray:
    """Both signs of every float32 within ``steps`` of a point."""
    bits = points.astype(np.float32).view(np.int32)[:, None].astype(np.int64) + np.arange(-steps, steps + 1)
    x = bits[(bits >= 0) & (bits <= 0x7F800000)].astype(np.uint32).view(np.float32)
    return np.concatenate([x, -x])


def random_floats(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def boundaries(values: np.ndarray) -> np.ndarray:
    """Values and the midpoints between them."""
    return np.concatenate([values, (values[1:] + values[:-1]) / 2])


def test_e4m3fn_saturates_and_rounds_to_even(probe: Any) -> None:
    table = np.arange(127, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    extremes = np.array([448.0, 464.0, 465.0, 1e30, np.inf, 2.0**-149, 2.0**-126])
    x = np.concatenate([around(boundaries(table)), around(extremes), random_floats(200_000)])
    x = x[~np.isnan(x)]
    expected = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(convert(probe, "e4m3fn", x), expected)
    assert {0x00, 0x80, 0x7E, 0xFE} <= set(expected.tolist())


def test_nan_codes(probe: Any) -> None:
    nan = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert convert(probe, "e4m3fn", nan).tolist() == [0x7F] * 4
    assert convert(probe, "bf16", nan).tolist() == [0x7FC0, 0xFFC0, 0x7FC0, 0xFFC0]
    for ties in ("even", "toward-zero"):
        assert convert(probe, f"e2m1 {ties}", nan).tolist() == [0] * 4


def test_bf16_on_every_upper_half(probe: Any) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    x = (upper | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).ravel().view(np.float32)
    x = x[~np.isnan(x)]
    np.testing.assert_array_equal(convert(probe, "bf16", x), x.astype(ml_dtypes.bfloat16).view(np.uint16))


@pytest.mark.parametrize("ties", ["even", "toward-zero"])
def test_e2m1_on_every_boundary(probe: Any, ties: str) -> None:
    x = np.concatenate([around(boundaries(E2M1)), around(np.array([7.0, 1e30, np.inf])), random_floats(100_000)])
    x = x[~np.isnan(x)]
    magnitude = np.minimum(np.abs(x).astype(np.float64), 6.0)
    middle = (E2M1[1:] + E2M1[:-1]) / 2
    below, passed = np.searchsorted(middle, magnitude), np.searchsorted(middle, magnitude, side="right")
    code = np.where(below % 2 == 0, below, passed) if ties == "even" else below
    signed = np.signbit(x) & ((code > 0) | (ties == "even"))
    np.testing.assert_array_equal(convert(probe, f"e2m1 {ties}", x), code | signed << 3)


def test_e2m1_even_agrees_with_ml_dtypes(probe: Any) -> None:
    x = np.clip(around(boundaries(E2M1)), -6, 6)
    expected = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(convert(probe, "e2m1 even", x), expected)


def test_ue8m0_rounds_up(probe: Any) -> None:
    powers = np.ldexp(1.0, np.arange(-126, 127))
    x = np.concatenate([around(powers, 3), np.abs(random_floats(100_000))])
    x = x[(x >= 2.0**-126) & (x <= 2.0**126)]
    fraction, exponent = np.frexp(x.astype(np.float64))
    np.testing.assert_array_equal(convert(probe, "ue8m0", x), exponent - (fraction == 0.5) + 127)
    assert convert(probe, "ue8m0", np.array([np.inf], np.float32)) == 254

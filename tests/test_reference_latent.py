"""Rows of the 512-dim latent cache."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dsa_crosscheck.reference.cache import write_records
from dsa_crosscheck.reference.latent import encode_latent, latent_layout, rotate_latent


@pytest.mark.parametrize(("page_size", "page_bytes"), [(64, 37440), (2, 1728), (256, 149760)])
def test_fp8_page(page_size: int, page_bytes: int) -> None:
    layout = latent_layout("fp8", page_size)
    assert layout.record_bytes == 584
    assert layout.page_bytes == page_bytes
    for t in range(page_size):
        # 448 fp8 values and 64 bf16 values, then the scale bytes of the whole page.
        assert layout.addresses[t, :576].tolist() == list(range(576 * t, 576 * t + 576))
        assert layout.addresses[t, 576:].tolist() == [576 * page_size + 8 * t + g for g in range(8)]


def test_bf16_page() -> None:
    layout = latent_layout("bf16", 64)
    np.testing.assert_array_equal(layout.addresses.reshape(-1), np.arange(64 * 1024))
    assert layout.page_bytes == 65536


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match=r"`latent_layout\(format_name=\.\.\.\)` should be 'fp8' or 'bf16', got 'fp4'"):
        latent_layout("fp4", 64)


def test_fp8_rows_of_bf16_values() -> None:
    rng = np.random.default_rng(0)
    rotated = rng.standard_normal((5, 512)) * 10.0 ** rng.integers(-8, 4, (5, 1))
    rotated[3, 64:128] = 0.0
    bf16 = rotated.astype(np.float32).astype(ml_dtypes.bfloat16)
    rows = encode_latent(rotated, "fp8")
    assert rows.shape == (5, 584)
    assert (rows[:, 583] == 0).all()
    np.testing.assert_array_equal(rows[:, 448:576].view(np.uint16), bf16[:, 448:].view(np.uint16))
    for row in range(5):
        for group in range(7):
            nope = bf16[row, 64 * group : 64 * group + 64].astype(np.float32)
            quotient = np.float32(max(np.abs(nope).max(), np.float32(1e-4))) / np.float32(448)
            mantissa, exponent = np.frexp(quotient)
            exponent = int(exponent) - (mantissa == 0.5)
            assert rows[row, 576 + group] == exponent + 127
            codes = np.ldexp(nope, -exponent).astype(ml_dtypes.float8_e4m3fn)
            np.testing.assert_array_equal(rows[row, 64 * group : 64 * group + 64], codes.view(np.uint8))


def test_bf16_rows() -> None:
    rotated = np.random.default_rng(0).standard_normal((3, 512))
    rows = encode_latent(rotated, "bf16")
    expected = rotated.astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(rows.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(("format_name", "record_bytes"), [("fp8", 584), ("bf16", 1024)])
def test_no_rows(format_name: str, record_bytes: int) -> None:
    assert encode_latent(np.zeros((0, 512)), format_name).shape == (0, record_bytes)


def test_rows_land_in_a_page() -> None:
    layout = latent_layout("fp8", 2)
    rows = encode_latent(np.random.default_rng(0).standard_normal((2, 512)), "fp8")
    cache = np.zeros((1, layout.page_bytes), np.uint8)
    write_records(cache, layout, rows, np.array([1, 0]))
    np.testing.assert_array_equal(cache[0, 576:1152], rows[0, :576])
    np.testing.assert_array_equal(cache[0, 1160:1168], rows[0, 576:])
    np.testing.assert_array_equal(cache[0, 1152:1160], rows[1, 576:])


def test_rotation_turns_the_last_64_dims_only() -> None:
    x = np.random.default_rng(0).standard_normal((2, 512))
    quarter_turn = np.tile(np.array([0.0, 1.0]), 32)[None]
    got = rotate_latent(x, np.ones(512), quarter_turn, np.zeros(2, np.int64), eps=1e-6)
    normed = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(got[:, :448], normed[:, :448], rtol=1e-14)
    np.testing.assert_allclose(got[:, 448::2], -normed[:, 449::2], rtol=1e-14)
    np.testing.assert_allclose(got[:, 449::2], normed[:, 448::2], rtol=1e-14)

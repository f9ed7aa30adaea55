"""The bytes of one vector, for every codec."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised, quantise
from dsa_crosscheck.reference.record import pack_record, unpack_record

CODECS = [
    Codec("exact"),
    Codec("bf16"),
    Codec("fp8-e4m3fn", "unit"),
    Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal"),
    Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax"),
    Codec("fp8-e4m3fnuz", "fp32", 1e-4, "amax", "divide", "reciprocal"),
    Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even"),
    Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="high-even"),
]


@st.composite
def quantised(draw: st.DrawFn) -> tuple[Codec, int, Quantised]:
    """A codec, a head size, and any codes and scales that it can store (NaN bit patterns included)."""
    codec = draw(st.sampled_from(CODECS))
    head_dim = draw(st.sampled_from([16, 32, 128]))
    shape = draw(st.sampled_from([(head_dim,), (3, head_dim), (2, 2, head_dim), (0, head_dim)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = {4: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32}[codec.spec.bits]
    codes = rng.integers(0, 1 << codec.spec.bits, shape, dtype)
    groups = (*shape[:-1], codec.groups(head_dim))
    if codec.scale_bytes == 1:
        scales = np.ldexp(np.float32(1), rng.integers(-126, 128, groups)).astype(np.float32)
    else:
        scales = rng.integers(0, 1 << 32, groups, np.uint32).view(np.float32)
    return codec, head_dim, Quantised(codes, scales)


@given(quantised())
def test_pack_then_unpack(case: tuple[Codec, int, Quantised]) -> None:
    codec, head_dim, q = case
    record = pack_record(q, codec)
    assert record.dtype == np.uint8
    assert record.shape == (*q.codes.shape[:-1], codec.record_bytes(head_dim))
    back = unpack_record(record, codec, head_dim)
    np.testing.assert_array_equal(back.codes, q.codes)
    np.testing.assert_array_equal(back.scales.view(np.uint32), np.ascontiguousarray(q.scales).view(np.uint32))


@given(quantised())
def test_pack_without_scales(case: tuple[Codec, int, Quantised]) -> None:
    codec, head_dim, q = case
    record = pack_record(q, codec, with_scales=False)
    np.testing.assert_array_equal(record, pack_record(q, codec)[..., : codec.value_bytes(head_dim)])
    back = unpack_record(record, codec, head_dim)
    np.testing.assert_array_equal(back.codes, q.codes)
    assert back.scales.shape == (*q.codes.shape[:-1], 0)


def test_nibble_orders() -> None:
    q = Quantised(np.arange(16, dtype=np.uint8), np.full(1, 0.5, np.float32))
    low, high = (pack_record(q, codec) for codec in CODECS[-2:])
    assert low.tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 126]
    assert high.tolist() == [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 126]


def test_fp4_scale_bytes_are_in_group_order() -> None:
    x = np.repeat([6.0, 12.0, 24.0, 48.0], 32)
    assert pack_record(quantise(x, CODECS[-2]), CODECS[-2])[64:].tolist() == [127, 128, 129, 130]


def test_values_and_scales_are_little_endian() -> None:
    bf16 = pack_record(quantise(np.array([1.0, -2.0]), Codec("bf16")), Codec("bf16"))
    assert bf16.tolist() == [0x80, 0x3F, 0x00, 0xC0]
    fp8 = pack_record(quantise(np.array([448.0, -448.0]), CODECS[3]), CODECS[3])
    assert fp8.tolist() == [0x7E, 0xFE, 0x00, 0x00, 0x80, 0x3F]


def test_record_sizes() -> None:
    assert [codec.record_bytes(128) for codec in CODECS] == [512, 256, 128, 132, 132, 132, 68, 68]


@pytest.mark.parametrize(("codec", "sizes"), [(CODECS[3], "128 or 132"), (CODECS[-1], "64 or 68")], ids=["fp8", "fp4"])
def test_wrong_length(codec: Codec, sizes: str) -> None:
    message = rf"`unpack_record\(record=\.\.\.\)` should have {sizes} bytes for {codec.format}, got 130"
    with pytest.raises(ValueError, match=message):
        unpack_record(np.zeros((2, 130), np.uint8), codec, 128)

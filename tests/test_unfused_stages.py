"""Stages of the torch path, each against a float64 or table-driven statement of its own."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.unfused.hadamard import hadamard
from dsa_crosscheck.cuda_impl.unfused.lanes import to_stored_order
from dsa_crosscheck.cuda_impl.unfused.norm import normalise
from dsa_crosscheck.cuda_impl.unfused.quantise import (
    apply_scales,
    dequantise,
    quantise,
    scale_bytes,
    scales_from_bytes,
)
from dsa_crosscheck.cuda_impl.unfused.rope import rotate
from dsa_crosscheck.reference.codec_spec import Codec

UNIT = 2.0**-24
FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
FNUZ = FP8.with_field("format", "fp8-e4m3fnuz")
POW2 = FP8.with_field("scale", "power-of-two")
UNIT_SCALE = Codec("fp8-e4m3fn", "unit")
FP4_EVEN = Codec("fp4-e2m1", "power-of-two", 6 * 2.0**-126, "amax", ties="even", nibbles="low-even")
FP4_ZERO = FP4_EVEN.with_field("ties", "toward-zero")
ALL_CODECS = [
    Codec("exact"),
    Codec("bf16"),
    *(FP8, FNUZ, POW2, UNIT_SCALE),
    FP8.with_field("apply", "divide"),
    FP8.with_field("scale_from", "reciprocal"),
    FP8.with_field("floor_on", "scale"),
    *(FP4_EVEN, FP4_ZERO, FP4_EVEN.with_field("nibbles", "high-even")),
]


def _rows(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_matches_float64(kind: str) -> None:
    x, weight, bias = _rows(0, 50, 128) + np.float32(0.5), _rows(1, 128), _rows(2, 128)
    eps = 1e-6
    exact = x.astype(np.float64)
    size = np.abs(exact)
    if kind == "layer":
        size = size + np.abs(exact).mean(axis=1, keepdims=True)
        exact = exact - exact.mean(axis=1, keepdims=True)
    root = np.sqrt((exact**2).mean(axis=1, keepdims=True) + eps)
    exact = exact / root * weight + (bias if kind == "layer" else 0.0)
    # 128 additions of the mean and of the squares bound any summation order; a few roundings follow.
    bound = UNIT * (140 * size / root * np.abs(weight) + 140 * np.abs(exact) + 2 * np.abs(bias))
    packed = torch.from_numpy(np.stack((weight, bias)) if kind == "layer" else weight)
    got = normalise(torch.from_numpy(x), packed, kind, eps).numpy()
    assert (np.abs(got - exact) <= bound).all()


def test_norm_of_a_zero_row_and_wrong_weights() -> None:
    weight = torch.ones(2, 128)
    assert normalise(torch.zeros(1, 128), weight[0], "rms", 1e-6).abs().max() == 0
    assert torch.equal(normalise(torch.zeros(1, 128), weight, "layer", 1e-6), torch.ones(1, 128))
    for kind, bad in (("rms", weight), ("layer", weight[0])):
        with pytest.raises(ValueError, match=r"normalise\(weight=.*got \["):
            normalise(torch.zeros(1, 128), bad, kind, 1e-6)


@pytest.mark.parametrize("pairing", ["interleaved", "half-split"])
@pytest.mark.parametrize("dims", ["first", "last"])
@pytest.mark.parametrize("heads", [(), (3,)])
def test_rope_is_a_complex_product(pairing: str, dims: str, heads: tuple[int, ...]) -> None:
    angle = np.random.default_rng(3).uniform(0, 6, (40, 32))
    table = np.stack((np.cos(angle), np.sin(angle)), axis=-1).reshape(40, 64).astype(np.float32)
    positions = np.array([0, 7, 7, 39])
    x = _rows(4, 4, *heads, 128)
    at = np.arange(64) + (0 if dims == "first" else 64)
    first = at[0::2] if pairing == "interleaved" else at[:32]
    second = at[1::2] if pairing == "interleaved" else at[32:]
    turn = (table[:, 0::2].astype(np.float64) + 1j * table[:, 1::2])[positions]
    turn = turn.reshape(4, *(1,) * len(heads), 32)
    turned = (x[..., first].astype(np.float64) + 1j * x[..., second]) * turn
    exact = x.astype(np.float64)
    exact[..., first], exact[..., second] = turned.real, turned.imag
    got = rotate(torch.from_numpy(x), torch.from_numpy(table), torch.from_numpy(positions), pairing, dims).numpy()
    # Two products and a sum, on numbers no larger than the pair's modulus times sqrt(2).
    bound = np.zeros(x.shape)
    bound[..., first] = bound[..., second] = 3 * np.sqrt(2) * UNIT * np.abs(turned)
    assert (np.abs(got - exact) <= bound).all()
    assert np.abs(got - x).max() > 0.1


def _walsh(n: int, order: str) -> np.ndarray:
    i = np.arange(n)
    natural = 1.0 - 2.0 * np.array([[(a & b).bit_count() % 2 for b in i] for a in i])
    if order == "natural":
        return natural
    # Sequency s is the natural row whose index is the bit-reversed Gray code of s.
    width = n.bit_length() - 1
    gray = i ^ (i >> 1)
    return natural[[int(f"{g:0{width}b}"[::-1], 2) for g in gray]]


@pytest.mark.parametrize("order", ["natural", "sequency"])
@pytest.mark.parametrize("scale", ["orthonormal", "none"])
def test_hadamard_matrix_entry_by_entry(order: str, scale: str) -> None:
    got = hadamard(torch.eye(128), order, scale).numpy()
    factor = np.float32(128**-0.5) if scale == "orthonormal" else np.float32(1)
    np.testing.assert_array_equal(got.T, _walsh(128, order).astype(np.float32) * factor)


def test_hadamard_error_is_seven_additions() -> None:
    x = _rows(5, 20, 128)
    exact = x.astype(np.float64) @ _walsh(128, "natural").T * 128**-0.5
    bound = UNIT * 9 * np.abs(x).astype(np.float64).sum(axis=1, keepdims=True) * 128**-0.5
    assert (np.abs(hadamard(torch.from_numpy(x), "natural", "orthonormal").numpy() - exact) <= bound).all()


def test_lane_orders_are_the_permutations_they_say() -> None:
    x = torch.arange(128)
    assert torch.equal(to_stored_order(x, "lane-major"), x)
    assert to_stored_order(x, "strided").tolist() == [lane + 32 * i for lane in range(32) for i in range(4)]
    assert to_stored_order(x, "bit-reversed").tolist() == [int(f"{i:07b}"[::-1], 2) for i in range(128)]
    assert to_stored_order(torch.arange(2), "bit-reversed").tolist() == [0, 1]
    changes = np.count_nonzero(np.diff(_walsh(128, "natural"), axis=1), axis=1)
    assert changes[to_stored_order(x, "sequency").numpy()].tolist() == list(range(128))
    with pytest.raises(ValueError, match="multiple of 32"):
        to_stored_order(torch.zeros(16), "strided")


@pytest.mark.parametrize("codec", ALL_CODECS, ids=str)
def test_codes_are_the_nearest(codec: Codec) -> None:
    """Every stored element is the format's nearest value to element / scale, by search of the table."""
    x = _rows(6, 60, 128) * np.exp2(np.random.default_rng(7).uniform(-20, 20, (60, 1))).astype(np.float32)
    x[0] = 0.0
    quantised = quantise(torch.from_numpy(x), codec)
    elements = dequantise(quantised.values, codec).numpy().astype(np.float64)
    if codec.format == "exact":
        np.testing.assert_array_equal(elements, x)
        return
    if codec.format == "bf16":
        np.testing.assert_array_equal(elements, x.astype(ml_dtypes.bfloat16).astype(np.float64))
        return
    ratio = x.astype(np.float64)
    if codec.scale_bytes:
        steps = np.repeat(quantised.scales.numpy().astype(np.float64), 128 // quantised.scales.shape[-1], axis=-1)
        ratio = ratio / steps
    grid = codec.spec.magnitudes
    clamped = np.clip(ratio, -codec.spec.max_value, codec.spec.max_value)
    nearest = np.abs(np.abs(clamped)[..., None] - grid).min(axis=-1)
    # 1 / scale and the product each round once; they can move a value across a midpoint by that much.
    slack = 4 * UNIT * np.abs(clamped)
    assert (np.abs(elements - clamped) <= nearest + slack).all()
    assert set(np.unique(np.abs(elements))) <= set(grid)
    if codec.scale_bytes:
        stored = scale_bytes(quantised.scales, codec)
        assert stored.shape == (60, codec.groups(128) * codec.scale_bytes)
        assert torch.equal(scales_from_bytes(stored, codec), quantised.scales)
        restored = apply_scales(torch.from_numpy(elements).float(), quantised.scales).numpy()
        np.testing.assert_array_equal(restored, (elements * steps).astype(np.float32))


@pytest.mark.parametrize("codec", [FP8, FNUZ], ids=str)
def test_scale_and_floor_in_float32(codec: Codec) -> None:
    largest = np.float32(codec.spec.max_value)
    for amax in (np.float32(3.7), np.float32(1e-5), np.float32(0)):
        x = torch.zeros(1, 128)
        x[0, 9] = -float(amax)
        scale = quantise(x, codec).scales.numpy()[0, 0]
        assert scale == np.maximum(amax, np.float32(1e-4)) / largest
        assert quantise(x, codec.with_field("floor_on", "scale")).scales.numpy()[0, 0] == np.maximum(
            amax / largest, np.float32(1e-4)
        )
        assert quantise(x, codec.with_field("scale_from", "reciprocal")).scales.numpy()[0, 0] == np.maximum(
            amax, np.float32(1e-4)
        ) * (np.float32(1) / largest)


@pytest.mark.parametrize("codec", [POW2, FP4_EVEN], ids=str)
def test_power_of_two_scales_round_up(codec: Codec) -> None:
    largest = codec.spec.max_value
    below, above = np.nextafter(np.float32(largest), np.float32(0)), np.nextafter(np.float32(largest), np.float32(1e9))
    for amax, scale in ((largest, 1.0), (above, 2.0), (below, 1.0), (largest / 2, 0.5), (largest * 0.51, 1.0)):
        x = torch.zeros(1, 128)
        x[0, 0] = float(amax)
        assert quantise(x, codec).scales[0, 0] == scale


def test_fp4_midpoints_and_zeros_by_tie_rule() -> None:
    midpoints = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    x = torch.zeros(1, 128)
    x[0, :7] = torch.from_numpy(midpoints)
    x[0, 7:14] = torch.from_numpy(-midpoints)
    x[0, 14], x[0, 15], x[0, 16], x[0, 17] = -0.0, -0.2, 6.0, 0.0
    for start in (32, 64, 96):
        x[0, start] = 6.0  # every group has scale 1
    even = dequantise(quantise(x, FP4_EVEN).values, FP4_EVEN)[0, :18].tolist()
    zero = dequantise(quantise(x, FP4_ZERO).values, FP4_ZERO)[0, :18].tolist()
    ties_even = x[0, :18].numpy().astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(even, ties_even)
    np.testing.assert_array_equal(np.signbit(even), np.signbit(ties_even))
    down = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]
    assert zero == [*down, *(-v for v in down), 0.0, 0.0, 6.0, 0.0]
    assert not np.signbit([v for v in zero if v == 0]).any()


def test_nibble_order() -> None:
    x = torch.zeros(1, 128)
    x[0, 0], x[0, 1] = 6.0, 0.5
    assert quantise(x, FP4_EVEN).values[0, 0] == 0x17
    assert quantise(x, FP4_EVEN.with_field("nibbles", "high-even")).values[0, 0] == 0x71


@pytest.mark.parametrize("codec", [FP8, FP4_EVEN], ids=str)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_scale_needs_finite_elements(codec: Codec, value: float) -> None:
    x = torch.zeros(1, 128)
    x[0, 3] = value
    with pytest.raises(ValueError, match=r"quantise\(x=.*finite"):
        quantise(x, codec)


def test_unit_scale_clamps_and_keeps_nan() -> None:
    x = torch.tensor([[torch.inf, -1e9, torch.nan, -0.0, 463.0]])
    assert quantise(x, UNIT_SCALE).values.tolist() == [[0x7E, 0xFE, 0x7F, 0x80, 0x7E]]

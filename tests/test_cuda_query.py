"""The query kernel: codes, folded weights, bf16 points."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import exact_path
import known_answers
import ml_dtypes
import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.ops.query import encode_query
from dsa_crosscheck.reference.codec_spec import Codec

FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
FP8_POW2 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")
FP8_UNIT = Codec("fp8-e4m3fn", "unit")
BF16 = Codec("bf16")
FP4 = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="toward-zero", nibbles="low-even")


def make_query(rows: int, heads: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(rows * 100 + heads)
    query = (rng.standard_normal((rows, heads, 128)) * np.exp2(rng.uniform(-3, 3, (rows, heads, 1)))).astype(np.float32)
    angle = rng.uniform(-3, 3, (50, 32))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).reshape(50, 64).astype(np.float32)
    arrays = (query, rng.standard_normal((rows, heads)).astype(np.float32), table, rng.integers(0, 50, rows))
    return dict(zip(("query", "gate", "rope_table", "positions"), map(torch.from_numpy, arrays), strict=True))


def rotated(case: dict[str, torch.Tensor]) -> np.ndarray:
    roped = exact_path.rope_last_64(case["query"].numpy(), case["rope_table"].numpy(), case["positions"].numpy())
    return exact_path.hadamard_128(roped)


def factor(heads: int) -> np.float32:
    return np.float32(128**-0.5 * heads**-0.5)


@pytest.mark.parametrize(("rows", "heads"), [(3, 64), (5, 1), (1, 7)])
@pytest.mark.parametrize("codec", [FP8, FP8_POW2])
def test_fp8_folds_its_scale(codec: Codec, rows: int, heads: int) -> None:
    case = make_query(rows, heads)
    codes, weights = encode_query(**case, codec=codec)
    expected = exact_path.fp8(rotated(case), power_of_two=codec.scale == "power-of-two")
    assert codes.shape == (rows, heads, 128)
    expected.check(codes.numpy())
    exact = case["gate"].numpy().astype(np.float64) * 128**-0.5 * heads**-0.5 * expected.scales[..., 0]
    np.testing.assert_allclose(weights.numpy(), exact, rtol=1e-6)


def test_weight_multiplies_in_the_stated_order() -> None:
    # A power-of-two scale is exact, so gate * factor is the only rounding.
    case = make_query(9, 10)
    expected = exact_path.fp8(rotated(case), power_of_two=True)
    weights = encode_query(**case, codec=FP8_POW2)[1].numpy()
    np.testing.assert_array_equal(
        weights, case["gate"].numpy() * factor(10) * expected.scales[..., 0].astype(np.float32)
    )


def test_unit_scale_casts_and_clamps() -> None:
    case = make_query(2, 3)
    case["query"][0, 0] *= 1e4
    codes, weights = encode_query(**case, codec=FP8_UNIT)
    x = rotated(case)
    expected = np.clip(x, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    close = exact_path.nearest(x, np.ones((2, 3, 1)), exact_path.E4M3, 0x80, np.uint8)
    np.testing.assert_array_equal(codes.numpy()[close.decided], expected[close.decided])
    assert {0x7E, 0xFE} <= set(codes[0, 0].tolist())
    np.testing.assert_array_equal(weights.numpy(), case["gate"].numpy() * factor(3))


def test_bf16_record() -> None:
    case = make_query(4, 6)
    codes, weights = encode_query(**case, codec=BF16)
    assert codes.shape == (4, 6, 256)
    exact_path.bf16(rotated(case)).check(codes.numpy().view("<u2"))
    np.testing.assert_array_equal(weights.numpy(), case["gate"].numpy() * factor(6))


@pytest.mark.parametrize("ties", ["even", "toward-zero"])
def test_fp4_record(ties: str) -> None:
    case = make_query(4, 6)
    codes, weights = encode_query(**case, codec=replace(FP4, ties=ties))
    assert codes.shape == (4, 6, 68)
    expected = exact_path.fp4(rotated(case), negative_zero=ties == "even")
    np.testing.assert_array_equal(codes.numpy()[..., 64:], exact_path.exponent_bytes(expected.scales))
    expected.check(exact_path.unpack_nibbles(codes.numpy()[..., :64]))
    np.testing.assert_array_equal(weights.numpy(), case["gate"].numpy() * factor(6))


@pytest.mark.parametrize("ties", ["even", "toward-zero"])
def test_fp4_midpoints_follow_the_tie_rule(ties: str) -> None:
    # A spike of 0.75 sqrt(128) spreads to +-0.75 everywhere up to a float32 rounding; bfloat16 makes it exact.
    case = make_query(1, 1)
    case["query"][:] = 0
    case["query"][0, 0, 0] = 0.75 * 128**0.5
    case["query"][0, 0, 1] = 5.25 * 128**0.5
    codes, _ = encode_query(**case, codec=replace(FP4, ties=ties), bf16_points={"query-rotated"})
    # Even dims hold 6 and odd ones -4.5; amax 6 gives scale 1, and 4.5 lies inside the code 4.
    assert (codes[0, 0, 64:] == 127).all()
    assert (codes[0, 0, :64] == 0xE7).all()
    case["query"][0, 0, 1] = 1.25 * 128**0.5
    case["query"][0, 0, 0] = 3.75 * 128**0.5
    codes, _ = encode_query(**case, codec=replace(FP4, ties=ties), bf16_points={"query-rotated"})
    # 5 and 2.5 at scale 1 are midpoints: even gives 4 and 2, toward zero too.
    assert (codes[0, 0, :64] == 0x46).all()
    case["query"][0, 0, 1] = 2.0 * 128**0.5
    case["query"][0, 0, 0] = 5.5 * 128**0.5
    codes, _ = encode_query(**case, codec=replace(FP4, ties=ties), bf16_points={"query-rotated"})
    # 7.5 and 3.5: scale 2 makes them 3.75 and 1.75, a midpoint whose even neighbour is 2.
    assert (codes[0, 0, 64:] == 128).all()
    assert (codes[0, 0, :64] == (0x46 if ties == "even" else 0x36)).all()


def test_each_bf16_point_acts() -> None:
    case = make_query(8, 8)
    plain = encode_query(**case, codec=BF16)[0]
    roped = encode_query(**case, codec=BF16, bf16_points={"query-roped"})[0]
    assert not torch.equal(plain, roped)
    # Rounding twice to the same format changes nothing.
    assert torch.equal(plain, encode_query(**case, codec=BF16, bf16_points={"query-rotated"})[0])
    fp8 = encode_query(**case, codec=FP8)[0]
    assert not torch.equal(fp8, encode_query(**case, codec=FP8, bf16_points={"query-rotated"})[0])
    exact = exact_path.rope_last_64(case["query"].numpy(), case["rope_table"].numpy(), case["positions"].numpy())
    once = exact.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    error = np.abs(roped.numpy().view(ml_dtypes.bfloat16).astype(np.float64) - exact_path.hadamard_128(once))
    size = np.abs(exact).max(-1, keepdims=True)
    # Almost all agree to bfloat16's own rounding; an element near a boundary of the first may not.
    assert np.median(error / size) < 2.0**-9


@pytest.mark.parametrize("seed", known_answers.SEEDS)
@pytest.mark.parametrize("codec", [FP8, FP8_POW2])
def test_known_answers(codec: Codec, seed: int) -> None:
    case = known_answers.load(seed)
    inputs = case["inputs"]
    answer = case["v4"]["fp8_power_of_two_scale" if codec.scale == "power-of-two" else "fp8_fp32_scale"]
    codes, weights = encode_query(
        *(torch.from_numpy(inputs[name].copy()) for name in ("query", "gate", "rope_table")),
        torch.tensor(inputs["query_positions"]),
        codec=codec,
    )
    decided = answer["query_decided"].astype(bool)
    assert decided.mean() > 0.9
    np.testing.assert_array_equal(codes.numpy()[decided], answer["query_codes"][decided])
    np.testing.assert_allclose(weights.numpy(), answer["weights"], rtol=5e-7)


@pytest.mark.parametrize(("rows", "heads"), [(0, 4), (3, 0)])
def test_nothing_to_encode(rows: int, heads: int) -> None:
    case = make_query(3, 4)
    case |= {
        "query": torch.empty(rows, heads, 128),
        "gate": torch.empty(rows, heads),
        "positions": case["positions"][:rows],
    }
    codes, weights = encode_query(**case, codec=FP8)
    assert codes.shape == (rows, heads, 128)
    assert weights.shape == (rows, heads)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": torch.zeros(3, 4, 64)}, r"`encode_query\(query=...\)` should be .*128"),
        ({"gate": torch.zeros(3, 5)}, "gate=.*heads = 4"),
        ({"positions": torch.tensor([0, 50, 1])}, r"positions=.*got 50 at \(1,\)"),
        ({"bf16_points": {"normed"}}, r"bf16_points=.*query-roped.*got \['normed'\]"),
        ({"codec": Codec("exact")}, r"codec=.*\(128, 'fp8-e4m3fn', 'unit', None\).*'exact'"),
        ({"codec": replace(FP4, nibbles="high-even")}, "nibbles='low-even'"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_query(**{**make_query(3, 4), "codec": FP8} | changes)

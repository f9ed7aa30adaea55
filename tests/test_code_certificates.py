"""The certificates of codes, scales and values, against search over the code table and over float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dsa_crosscheck.compare.code_certificate import certify_codes, certify_scales, code_order
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised, encode, group_scales, quantise

UNIT = Codec("fp8-e4m3fn", "unit")
FNUZ = Codec("fp8-e4m3fnuz", "unit")
FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
POW2 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")
FP4_EVEN = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even")
FP4_ZERO = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="toward-zero", nibbles="low-even")
DIM = 2
EXAMPLES = settings(max_examples=40, deadline=None)

BY_SEARCH = {"e4m3fn": UNIT, "e4m3fnuz": FNUZ, "fp4 even": FP4_EVEN, "fp4 toward zero": FP4_ZERO, "pow2": POW2}
# Exact midpoints and table values are where rounding rules differ.
VALUES = st.one_of(
    st.sampled_from([0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 1.0625, 448.0, 464.0, 2.0**-9, 2.0**-10]),
    st.floats(-500, 500, allow_subnormal=False),
).flatmap(lambda x: st.sampled_from([x, -x]))
BOUNDS = st.one_of(st.just(0.0), st.floats(1e-6, 2.0))


def every_code(codec: Codec, value: float, bound: float) -> tuple[np.ndarray, np.ndarray, Quantised, Quantised]:
    """Values and bounds, all equal, beside every code of the format at scale 1, and the reference's code."""
    codes = np.repeat(np.arange(1 << codec.spec.bits, dtype=np.uint8)[:, None], DIM, axis=1)
    scales = np.ones((codes.shape[0], 1 if codec.scale_bytes else 0), np.float32)
    values = np.full(codes.shape, value)
    mine = encoded(np.full(codes.shape, value), codec)
    return values, np.full(codes.shape, bound), Quantised(codes, scales), Quantised(mine, scales)


def encoded(values: np.ndarray, codec: Codec) -> np.ndarray:
    """Codes at scale 1: a bare format's, or with one more element that sets the scale."""
    if not codec.scale_bytes:
        return quantise(values, codec).codes
    lead = np.full((*values.shape, DIM), codec.spec.max_value)
    lead[..., 1] = np.clip(values, -codec.spec.max_value, codec.spec.max_value)
    return quantise(lead, codec).codes[..., 1]


@pytest.mark.parametrize("codec", BY_SEARCH.values(), ids=BY_SEARCH)
@EXAMPLES
@given(value=VALUES, bound=BOUNDS)
def test_codes_are_explained_exactly_when_a_float32_in_reach_has_them(codec: Codec, value: float, bound: float) -> None:
    value = float(np.float32(value))
    values, bounds, got, reference = every_code(codec, value, bound)
    certificate = certify_codes(values, bounds, got, reference, codec)
    # Narrow codes may lie between two points of a grid: the table's own values and midpoints are added.
    table = codec.spec.magnitudes
    points = np.concatenate([np.linspace(value - bound, value + bound, 257), table, (table[1:] + table[:-1]) / 2])
    points = np.concatenate([points, -points])
    reach = points[(points >= value - bound) & (points <= value + bound)]
    possible = np.unique(code_order(encoded(reach, codec), codec.spec))
    nan = np.isin(got.codes[:, 0], codec.spec.nan_codes)
    wanted = np.isin(code_order(got.codes[:, 0], codec.spec), possible) & ~nan
    np.testing.assert_array_equal(certificate.explained[:, 0], wanted)
    np.testing.assert_array_equal(certificate.explained, certificate.factor <= 1.0)
    assert (certificate.factor[nan] == np.inf).all()


@pytest.mark.parametrize("codec", BY_SEARCH.values(), ids=BY_SEARCH)
@EXAMPLES
@given(value=VALUES, bound=st.floats(1e-3, 1.0))
def test_factor_is_the_smallest_that_explains(codec: Codec, value: float, bound: float) -> None:
    values, bounds, got, reference = every_code(codec, value, bound)
    factor = certify_codes(values, bounds, got, reference, codec).factor
    finite = np.isfinite(factor)
    factor = np.where(finite, factor, 1.0)
    assume((factor[finite] > 0).any())
    # Rounding of the ends to float32 blurs the boundary by an ulp of the value.
    blur = 1e-6 + 2.0**-23 * np.abs(value) / bound
    above, below = factor + 2 * blur * (1 + factor), np.maximum(factor - 2 * blur * (1 + factor), 0)
    assert certify_codes(values, bounds * above, got, reference, codec).explained[finite].all()
    assert not certify_codes(values, bounds * below, got, reference, codec).explained[finite & (below > 0)].any()


@EXAMPLES
@given(value=st.floats(-3, 3), bound=st.floats(1e-5, 0.3), scale=st.floats(0.004, 0.1))
@example(value=0.004, bound=0.29999999999999993, scale=0.004)  # a quotient rounded once is a midpoint
def test_codes_with_a_float32_scale(value: float, bound: float, scale: float) -> None:
    """Roundings of the reciprocal and of the product are allowed as well, and nothing more."""
    codes = np.repeat(np.arange(256, dtype=np.uint8)[:, None], DIM, axis=1)
    step = np.float32(scale)
    got = Quantised(codes, np.full((256, 1), step))
    certificate = certify_codes(np.full(codes.shape, value), np.full(codes.shape, bound), got, got, FP8)

    def by_reciprocal(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32) * (np.float32(1) / step)

    def rounded_once(x: np.ndarray) -> np.ndarray:
        return (x / np.float64(step)).astype(np.float32)

    def orders(low: float, high: float, *scaled: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        x = np.concatenate([one(np.linspace(low, high, 4001)) for one in scaled])
        return np.unique(code_order(encoded(x, UNIT), UNIT.spec))

    np.testing.assert_array_equal(certificate.explained, certificate.factor <= 1.0)
    mine = code_order(codes[:, 0], UNIT.spec)
    accepted = set(mine[certificate.explained[:, 0]])
    assert set(orders(value - bound, value + bound, by_reciprocal)) <= accepted
    wide = bound + 4 * 2.0**-24 * abs(value)
    reachable = orders(value - wide, value + wide, by_reciprocal, rounded_once)
    assert all(reachable.min() <= order <= reachable.max() for order in accepted)


@pytest.mark.parametrize("apply", ["reciprocal", "divide"])
def test_the_scaling_itself_may_round(apply: str) -> None:
    """Float32 values a few ulps around every boundary, scaled in float32: right without any bound."""
    codec = FP8.with_field("apply", apply)
    table = codec.spec.magnitudes[1:]
    scales = np.random.default_rng(0).uniform(0.004, 0.1, (400, 1)).astype(np.float32)
    values = (scales.astype(np.float64) * (table[1:] + table[:-1]) / 2).astype(np.float32)
    values = np.concatenate([values, np.nextafter(values, 0), np.nextafter(values, 1e9)])
    steps = np.tile(scales, (3, 1))
    scaled = values * (np.float32(1) / steps) if apply == "reciprocal" else values / steps
    got = Quantised(encode(scaled, codec.spec, "even"), steps)
    exact = Quantised(encode((values / steps.astype(np.float64)).astype(np.float32), codec.spec, "even"), steps)
    certificate = certify_codes(values.astype(np.float64), np.zeros(values.shape), got, exact, codec)
    assert certificate.explained.all()
    # The boundaries are really met: two roundings make other codes than the exact quotient's, one does not.
    assert ((certificate.steps > 0).sum() > 10) == (apply == "reciprocal")


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(("apply", "roundings"), [("reciprocal", 2), ("divide", 1)])
def test_the_scaling_may_round_no_more_than_that(apply: str, roundings: int, side: int) -> None:
    """Two units further from a boundary than the roundings reach, the code beyond it is not explained."""
    codec = FP8.with_field("apply", apply)
    table = codec.spec.magnitudes[1:]
    steps = np.random.default_rng(0).uniform(0.004, 0.1, (400, 1)).astype(np.float32)
    scaled = (table[1:] + table[:-1]) / 2 * (1 + side * (roundings + 2) * 2.0**-24)
    values = steps.astype(np.float64) * scaled
    beyond = np.arange(1, table.size, dtype=np.uint8) + (0 if side > 0 else 1)
    right = Quantised(encode(np.tile(scaled, (400, 1)).astype(np.float32), codec.spec, "even"), steps)
    got = Quantised(np.tile(beyond, (400, 1)), steps)
    certificate = certify_codes(values, np.zeros(values.shape), got, right, codec)
    assert (certificate.steps == 1).all()
    assert not certificate.explained.any()


@pytest.mark.parametrize(("codec", "kind"), [(Codec("bf16"), np.uint16), (Codec("exact"), np.uint32)])
@EXAMPLES
@given(value=st.floats(0.01, 100), bound=st.floats(1e-6, 1e-2))
def test_wide_formats(codec: Codec, kind: type, value: float, bound: float) -> None:
    values, reference = np.full((41, 1), value), quantise(np.full((41, 1), value), codec)
    codes = (reference.codes.astype(np.int64) + np.arange(-20, 21)[:, None]).astype(kind)
    certificate = certify_codes(values, np.full((41, 1), bound), Quantised(codes, reference.scales), reference, codec)
    low, high = (int(quantise(np.array([value + e]), codec).codes[0]) for e in (-bound, bound))
    np.testing.assert_array_equal(certificate.explained, (codes >= low) & (codes <= high))
    np.testing.assert_array_equal(certificate.steps[:, 0], np.abs(np.arange(-20, 21)))


@pytest.mark.parametrize(("codec", "code"), [(Codec("bf16"), 0x7FC0), (Codec("exact"), 0x7FC00000), (UNIT, 0xFF)])
def test_nan_codes_are_never_explained(codec: Codec, code: int) -> None:
    reference = quantise(np.array([[448.0]]), codec)
    got = Quantised(np.full_like(reference.codes, code), reference.scales)
    certificate = certify_codes(np.array([[448.0]]), np.array([[1e30]]), got, reference, codec)
    assert not certificate.explained.any()
    assert certificate.factor[0, 0] == np.inf


@pytest.mark.parametrize("codec", [FP8, POW2, FP4_EVEN])
@EXAMPLES
@given(size=st.floats(0, 100), bound=st.floats(0, 1e-2), at=st.floats(0, 1))
def test_scales_of_every_admissible_amax_are_explained(codec: Codec, size: float, bound: float, at: float) -> None:
    values = np.zeros((1, DIM))
    values[0, 1] = -size
    low, high = max(size - bound, bound, 0.0), size + bound
    amax = np.array([[low + at * (high - low)]], np.float32)
    certificate = certify_scales(values, np.full((1, DIM), bound), group_scales(amax, codec), codec)
    assert certificate.explained.all()
    assert (certificate.low <= certificate.high).all()


@pytest.mark.parametrize(
    ("codec", "wrong"),
    [
        (FP8, [0.0, -0.01, np.nan, np.inf, 4.48 / 448 * (1 + 1e-5), 4.48 / 448 * (1 - 1e-5), 2.0**-6]),
        (POW2, [0.0, -(2.0**-6), np.nan, np.inf, 4.48 / 448, 2.0**-7, 2.0**-5]),
        (FP4_EVEN, [0.0, np.nan, 0.5, 2.0, 4.48 / 6]),
    ],
)
def test_other_scales_are_not(codec: Codec, wrong: list[float]) -> None:
    values = np.full((len(wrong), DIM), 4.48)
    right = group_scales(np.full((1, 1), 4.48, np.float32), codec)
    bound = np.full(values.shape, 1e-6)
    assert certify_scales(values[:1], bound[:1], right, codec).explained.all()
    assert not certify_scales(values, bound, np.array(wrong, np.float32)[:, None], codec).explained.any()


def test_a_power_of_two_scale_may_fall_on_either_side_of_its_step() -> None:
    values, bound = np.full((4, DIM), 448.0), np.full((4, DIM), 1e-3)
    scales = np.array([[0.5], [1.0], [2.0], [1.5]], np.float32)
    assert certify_scales(values, bound, scales, POW2).explained[:, 0].tolist() == [False, True, True, False]


def test_no_vectors_are_fine() -> None:
    none = quantise(np.zeros((0, DIM)), FP8)
    assert certify_scales(np.zeros((0, DIM)), np.zeros((0, DIM)), none.scales, FP8).explained.shape == (0, 1)
    assert certify_codes(np.zeros((0, DIM)), np.zeros((0, DIM)), none, none, FP8).explained.shape == (0, DIM)


@pytest.mark.parametrize(
    ("got", "want", "bound", "verdict", "factor"),
    [
        (1.0, 1.0, 0.0, Verdict.IDENTICAL, 0.0),
        (1.5, 1.0, 0.5, Verdict.WITHIN_BOUND, 1.0),
        (1.5, 1.0, 0.25, Verdict.VIOLATION, 2.0),
        (1.5, 1.0, 0.0, Verdict.VIOLATION, np.inf),
        (0.1, 0.1, 1e-8, Verdict.IDENTICAL, pytest.approx(0.149, abs=1e-3)),
        (np.nan, 1.0, 1e30, Verdict.VIOLATION, np.inf),
        (1.0, np.nan, 1.0, Verdict.VIOLATION, np.inf),
        (np.nan, np.nan, 0.0, Verdict.IDENTICAL, 0.0),
        (np.inf, 1.0, 1e30, Verdict.VIOLATION, np.inf),
        (-np.inf, -np.inf, 0.0, Verdict.IDENTICAL, 0.0),
        (0.0, -0.0, 0.0, Verdict.IDENTICAL, 0.0),
        (1.5, 1.0, np.nan, Verdict.VIOLATION, np.inf),
    ],
)
def test_values(got: float, want: float, bound: float, verdict: Verdict, factor: float) -> None:
    arrays = (np.array([got, 7.0], np.float32), np.array([want, 7.0]), np.array([bound, 1.0]))
    result = judge_values("here", *arrays, lambda at: f"at {at[0]}")
    assert (result.verdict, result.factor, result.elements) == (verdict, factor, 2)
    unseen = judge_values("here", *arrays, str, np.array([False, True]))
    assert (unseen.verdict, unseen.elements) == (Verdict.IDENTICAL, 1)
    nothing = judge_values("here", *(a[:0] for a in arrays), str)
    assert (nothing.verdict, nothing.elements) == (Verdict.IDENTICAL, 0)

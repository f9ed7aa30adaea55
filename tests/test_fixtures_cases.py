"""Generated cases: shapes of the batch, what each case promises, and the rotary table."""

from __future__ import annotations

import hashlib
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from dsa_crosscheck.fixtures.batch import plan_batch, query_rows, request_lengths
from dsa_crosscheck.fixtures.bfloat16 import bf16_bits, from_bf16_bits, is_bf16, round_to_bf16
from dsa_crosscheck.fixtures.cases import CASES, build_case
from dsa_crosscheck.fixtures.cases.exact_integers import pattern_magnitudes, sylvester
from dsa_crosscheck.fixtures.rope_table import Yarn, frequencies, rope_table
from dsa_crosscheck.fixtures.streams import stream
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs

GENERATED = [name for name in CASES if name != "captured-text"]
V32 = Geometry(compress_ratio=1, topk=2048)
SMALL = Geometry(heads=4, head_dim=32, rope_dim=16, page_size=8, topk=16)


def digest(inputs: Inputs) -> str:
    sha = hashlib.sha256()
    for spec in fields(Inputs):
        value = getattr(inputs, spec.name)
        sha.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return sha.hexdigest()


# --- the batch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("context", [1, 3, 4, 7, 261, 1000])
def test_any_context_builds(name: str, context: int) -> None:
    for geometry in (Geometry(), V32, SMALL):
        inputs = build_case(name, context=context, rows=1, seed=1, geometry=geometry)
        assert inputs.rows == 1
        assert inputs.rope_table.shape == (context, geometry.rope_dim)
        assert inputs.key_counts[0] == context // geometry.compress_ratio


@pytest.mark.parametrize("name", GENERATED)
def test_paging_and_rows(name: str) -> None:
    inputs = build_case(name, context=4099, rows=24, topk=100, seed=3)
    assert inputs.geometry.topk == 100
    assert inputs.key_counts.tolist() == [1024, 65, 1, 0]
    assert inputs.keys <= 1024 * 1.1
    pages = -(-inputs.key_counts // 64)
    for request, count in enumerate(pages):
        assert np.all(inputs.block_table[request, :count] > 0)
        assert np.all(inputs.block_table[request, count:] == -1)
    assert np.all(inputs.block_table[:, -1] == -1)
    used = inputs.block_table[inputs.block_table >= 0]
    assert np.unique(used).size == used.size
    assert not np.all(np.diff(used) > 0)
    assert inputs.pages > used.size + 1
    assert used.max() - used.min() + 1 > used.size  # unused pages lie between
    positions = inputs.query_positions
    main = inputs.request_of_row == 0
    assert {3, 4098} <= set(positions[main])
    assert set(positions[main] % 4) == {0, 1, 2, 3}
    assert np.all(positions < np.array([4099, 261, 7, 3])[inputs.request_of_row])
    assert set(inputs.request_of_row) == {0, 1, 2, 3}
    assert np.any(np.diff(inputs.request_of_row) < 0)  # rows of requests are mixed
    assert inputs.kv_score is not None
    assert inputs.kv_score.shape == (512, 512)


def test_rows_that_do_not_fill_the_edges() -> None:
    assert query_rows((100, 7), 1, 4) == [(0, 99)]
    assert query_rows((100, 7), 2, 4) == [(0, 99), (0, 3)]
    assert query_rows((100, 7), 5, 4) == [(0, 99), (0, 3), (1, 6), (0, 25), (0, 75)]
    assert query_rows((2,), 2, 4) == [(0, 1), (0, 1)]


def test_request_lengths() -> None:
    assert request_lengths(4096, Geometry()) == (4096, 261, 7, 3)
    assert request_lengths(4096, V32) == (4096, 66, 1, 1)
    assert request_lengths(5, Geometry()) == (5, 5, 5, 3)


def test_a_request_that_ends_with_its_page() -> None:
    batch = plan_batch((64 * 4, 64 * 4 + 4), [(0, 255)], Geometry(), seed=0)
    assert (batch.block_table >= 0).sum(axis=1).tolist() == [1, 2]
    assert batch.keys == 64 + 65
    assert batch.rows == 1


# --- what cases share ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_same_arguments_same_arrays(name: str) -> None:
    first = digest(build_case(name, context=512, rows=4, seed=7))
    assert digest(build_case(name, context=512, rows=4, seed=7)) == first
    assert digest(build_case(name, context=512, rows=4, seed=8)) != first


def test_streams_are_fixed_for_all_machines() -> None:
    assert stream(0, "a").integers(1 << 62, size=2).tolist() == [2207543202657330146, 2428627637877989446]
    assert stream(0, "a").random() != stream(0, "b").random()
    assert stream(0, "a").random() != stream(1, "a").random()


@pytest.mark.parametrize("name", CASES)
def test_queries_are_bfloat16_values(name: str) -> None:
    inputs = build_case(name, context=512, rows=4, seed=7)
    assert is_bf16(inputs.query)
    assert is_bf16(inputs.gate)


def test_defaults_and_errors() -> None:
    assert build_case("gaussian", context=8, rows=1).geometry == Geometry()
    for arguments, message in (
        ({"name": "nope"}, r"`build_case\(name=\.\.\.\)` should be one of .*'gaussian'.*, got 'nope'"),
        ({"context": 0}, r"`build_case\(context=\.\.\.\)` should be a positive integer, got 0"),
        ({"rows": 0}, r"`build_case\(rows=\.\.\.\)` should be a positive integer, got 0"),
        ({"rows": True}, r"`build_case\(rows=\.\.\.\)`"),
        ({"topk": 0}, r"`build_case\(topk=\.\.\.\)` should be a positive integer, got 0"),
        ({"seed": -1}, r"`build_case\(seed=\.\.\.\)` should be a non-negative integer, got -1"),
        ({"path": "x.nc"}, r"`build_case\(path=\.\.\.\)` should be None"),
        ({"name": "exact-integers", "geometry": replace(SMALL, head_dim=16)}, r"head_dim of at least 32 here, got 16"),
    ):
        with pytest.raises(ValueError, match=message):
            build_case(**{"name": "gaussian", "context": 8, "rows": 1, **arguments})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"`stream\(seed=\.\.\.\)`"):
        stream(-1, "a")


# --- what each case promises -----------------------------------------------------------------------------------


def rms_normed(inputs: Inputs) -> np.ndarray:
    pooled = inputs.pooled.astype(np.float64)
    return pooled / np.sqrt(np.mean(pooled**2, axis=1, keepdims=True) + 1e-6) * inputs.norm_weight


def rotated_tail(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    out, half = x.copy(), table.shape[-1]
    pair = out[..., -half::2] + 1j * out[..., x.shape[-1] - half + 1 :: 2]
    turned = pair * (table[..., 0::2] + 1j * table[..., 1::2])
    out[..., -half::2], out[..., x.shape[-1] - half + 1 :: 2] = turned.real, turned.imag
    return out


def scores_of(inputs: Inputs, row: int) -> np.ndarray:
    """Float64 scores of a row's visible keys under RMSNorm and RoPE on the last channels."""
    table = inputs.rope_table.astype(np.float64)
    mine = np.flatnonzero(inputs.key_request == inputs.request_of_row[row])
    mine = mine[: (inputs.query_positions[row] + 1) // 4]
    keys = rotated_tail(rms_normed(inputs)[mine], table[inputs.key_index[mine] * 4])
    query = rotated_tail(inputs.query[row].astype(np.float64), table[inputs.query_positions[row]])
    return inputs.gate[row] @ np.maximum(query @ keys.T, 0.0)


def test_outlier_has_four_loud_channels() -> None:
    inputs = build_case("outlier", context=4096, rows=8, seed=0)
    keys, queries = inputs.pooled.std(axis=0), inputs.query.std(axis=(0, 1))
    loud = keys > 4
    assert loud.sum() == 4
    assert np.array_equal(loud, queries > 4)
    np.testing.assert_allclose(keys[loud], 8, rtol=0.1)
    np.testing.assert_allclose(keys[~loud], 1, rtol=0.15)
    # The transform takes most of what they add to the largest magnitude away.
    plain = np.abs(inputs.pooled).max(axis=1).mean()
    assert np.abs(sylvester(inputs.pooled) / math.sqrt(128)).max(axis=1).mean() < 0.6 * plain


def test_plateau_ties_at_the_kth_place() -> None:
    inputs = build_case("plateau", context=4096, rows=16, seed=0)
    tied_rows, zero_share = 0, []
    for row in np.flatnonzero((inputs.request_of_row == 0) & (inputs.query_positions > 1000)):
        scores = scores_of(inputs, int(row))
        zero_share.append(np.mean(scores == 0))
        k = min(128, scores.size - 1)
        ordered = np.sort(scores)[::-1]
        tied_rows += bool(ordered[k - 1] == ordered[k] == 0)
    assert len(zero_share) >= 8
    assert min(zero_share) > 0.3
    assert tied_rows >= len(zero_share) // 3


def test_plateau_repeats_tie_off_the_plateau() -> None:
    inputs = build_case("plateau", context=4096, rows=16, seed=0)
    _, counts = np.unique(inputs.pooled, axis=0, return_counts=True)
    assert (counts > 1).sum() == 16
    assert 0.15 < counts[counts > 1].sum() / inputs.keys < 0.35
    row = int(np.flatnonzero(inputs.request_of_row == 0)[np.argmax(inputs.query_positions[inputs.request_of_row == 0])])
    scores = scores_of(inputs, row)
    _, times = np.unique(scores[scores != 0], return_counts=True)
    assert times.max() > 8


def test_spread_of_stored_sizes() -> None:
    inputs = build_case("spread", context=8192, rows=8, seed=0)
    rotated = sylvester(rms_normed(inputs)) / math.sqrt(128)
    amax = np.log2(np.abs(rotated).max(axis=1))
    assert 5.5 < np.ptp(amax) < 8
    counts, _ = np.histogram(amax, bins=np.linspace(amax.min(), amax.max(), 7))
    assert counts.min() > 0.05 * inputs.keys
    # The same numbers with a plain norm weight do not spread.
    plain = rms_normed(replace(inputs, norm_weight=np.ones_like(inputs.norm_weight)))
    assert np.ptp(np.log2(np.abs(sylvester(plain)).max(axis=1))) < 2
    assert np.ptp(np.log2(np.abs(inputs.query).max(axis=2))) > 5.5


# --- exact-integers --------------------------------------------------------------------------------------------


def exact_case(head_dim: int = 128) -> Inputs:
    return build_case("exact-integers", context=1024, rows=6, seed=0, geometry=Geometry(heads=8, head_dim=head_dim))


def rotated_float32(vectors: np.ndarray) -> np.ndarray:
    """The orthonormal transform as an engine does it: float32 throughout, one factor at the end."""
    return sylvester(vectors.astype(np.float32)) * np.float32(vectors.shape[-1] ** -0.5)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_exact_norms_and_patterns(head_dim: int, eps: float) -> None:
    inputs = exact_case(head_dim)
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        pooled: Any = inputs.pooled.astype(dtype)
        square = np.mean(pooled * pooled, axis=1, dtype=dtype)
        assert np.all(square + dtype.type(eps) == square)
        root = np.sqrt(square)
        assert np.all(np.frexp(root)[0] == 0.5)  # powers of two
        assert np.all(pooled.mean(axis=1, dtype=dtype) == 0)
        assert np.array_equal(pooled / root[:, None] * root[:, None], pooled)
    pattern = sylvester(inputs.pooled.astype(np.float64) / 2.0**20) / head_dim
    assert set(np.unique(pattern)) == {-4, -2, -1, 0, 1, 2, 4}
    assert np.all(pattern[:, 0] == 0)
    assert np.array_equal(np.sort(np.abs(pattern[:, 1:]), axis=1)[0], np.sort(pattern_magnitudes(head_dim)))
    assert np.abs(inputs.query).max() < 256  # bfloat16 integers
    assert np.array_equal(inputs.rope_table[:, 0::2], np.ones((1024, 32)))
    assert np.array_equal(inputs.rope_table[:, 1::2], np.zeros((1024, 32)))


def test_exact_codes_scales_and_dots() -> None:
    inputs = exact_case()
    pooled = inputs.pooled.astype(np.float32)
    keys = rotated_float32(pooled / np.sqrt(np.mean(pooled * pooled, axis=1, keepdims=True)))
    queries = rotated_float32(inputs.query)
    key_pattern = np.rint(keys / np.abs(keys).max() * 4)
    query_pattern = np.rint(queries / np.abs(queries).max() * 4)
    for values, pattern in ((keys, key_pattern), (queries, query_pattern)):
        constant = np.abs(values).max() / np.float32(4)
        assert np.array_equal(values, constant * pattern.astype(np.float32))
        # One fp8 scale for all, and codes 112 t, well inside their rounding intervals.
        scales = np.abs(values).max(axis=-1) / np.float32(448)
        assert np.unique(scales).size == 1
        assert np.abs(values / scales[..., None] - 112 * pattern).max() < 1e-4
        # bfloat16 rounds the constant once.
        assert np.array_equal(round_to_bf16(values), round_to_bf16(constant) * pattern.astype(np.float32))
    constants = round_to_bf16(np.abs(keys).max()) / 4 * (round_to_bf16(np.abs(queries).max()) / 4)
    for key_values, query_values, unit in (
        (112 * key_pattern, 112 * query_pattern, 112.0**2),
        (round_to_bf16(keys), round_to_bf16(queries), float(constants)),
    ):
        wanted = np.einsum("kd,rhd->rhk", key_values.astype(np.float64), query_values.astype(np.float64))
        integers = np.einsum("kd,rhd->rhk", key_pattern, query_pattern)
        assert np.abs(integers).max() <= 256
        assert np.array_equal(wanted, unit * integers)
        assert np.array_equal(wanted.astype(np.float32), wanted)
        for order in (np.arange(128), np.random.default_rng(0).permutation(128)):
            total = np.zeros(wanted.shape, dtype=np.float32)
            for d in order:
                total += query_values[:, :, d, None].astype(np.float32) * key_values[:, d].astype(np.float32)
            assert np.array_equal(total, wanted)


def test_exact_gates() -> None:
    inputs = exact_case()
    active = (inputs.gate != 0).sum(axis=1)
    assert active.tolist() == [1, 8, 1, 8, 1, 8]
    assert set(np.abs(inputs.gate[inputs.gate != 0])) <= {1, 2, 4}
    assert np.all(inputs.gate[::2] >= 0)
    assert np.any(inputs.gate[1::2] < 0)


@pytest.mark.parametrize("dim", [32, 64, 128, 256, 512])
def test_pattern_energy_is_a_power_of_four(dim: int) -> None:
    magnitudes = pattern_magnitudes(dim)
    assert magnitudes.shape == (dim - 1,)
    energy = int((magnitudes**2).sum())
    assert energy & (energy - 1) == 0
    assert energy.bit_length() % 2 == 1


def test_sylvester_is_the_matrix() -> None:
    matrix = np.array([[1.0]])
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    np.testing.assert_array_equal(sylvester(np.eye(16)), matrix)


# --- the rotary table and bfloat16 -----------------------------------------------------------------------------


def test_rope_table_values() -> None:
    table = rope_table(70_000, 64)
    assert table.dtype == np.float32
    for position, pair in ((0, 0), (1, 0), (69_999, 0), (65_536, 5), (12_345, 31)):
        angle = position * 160_000.0 ** (-2 * pair / 64)
        assert table[position, 2 * pair] == np.float32(math.cos(angle))
        assert table[position, 2 * pair + 1] == np.float32(math.sin(angle))
    assert rope_table(0, 64).shape == (0, 64)


def test_yarn_keeps_fast_and_divides_slow() -> None:
    plain, scaled = frequencies(64), frequencies(64, yarn=Yarn())
    turns = plain * 65_536 / (2 * math.pi)
    assert np.array_equal(scaled[turns > 40], plain[turns > 40])
    np.testing.assert_allclose(scaled[turns < 0.7], plain[turns < 0.7] / 16, rtol=1e-15)
    between = (turns < 20) & (turns > 2)
    assert between.sum() >= 3
    assert np.all((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 16))
    assert np.all(np.diff(scaled) < 0)
    step = frequencies(4, base=2.0, yarn=Yarn(factor=2.0, original_positions=1))
    assert np.all(np.isfinite(step))


def test_rope_table_errors() -> None:
    for call, message in (
        (lambda: rope_table(-1, 64), r"`rope_table\(positions=\.\.\.\)` should be at least 0, got -1"),
        (lambda: rope_table(1, 3), r"`rope_table\(rope_dim=\.\.\.\)` should be even"),
        (lambda: rope_table(1, 64, base=1.0), r"`rope_table\(base=\.\.\.\)` should be above 1"),
        (lambda: Yarn(factor=0.0), r"`Yarn\(factor=\.\.\.\)` should be positive"),
        (lambda: Yarn(beta_fast=1.0), r"`Yarn\(beta_fast=\.\.\.\)` should exceed beta_slow"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_bfloat16_edges() -> None:
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0, 2.0**-133])
    rounded = round_to_bf16(ties)
    np.testing.assert_array_equal(rounded, np.array([1, 1 + 2.0**-6, 0, 2.0**-133], dtype=np.float32))
    np.testing.assert_array_equal(rounded, round_to_bf16(ties.astype(np.float32)))
    assert np.signbit(rounded[2])
    # Just off a tie by less than float32 shows: one rounding goes the right way on both sides.
    tiny = 2.0**-30
    for sign in (1.0, -1.0):
        near = sign * np.array([1 + 2.0**-8 + tiny, 1 + 3 * 2.0**-8 - tiny, 1 + 2.0**-8 - tiny])
        wanted = sign * np.array([1 + 2.0**-7, 1 + 2.0**-7, 1.0])
        np.testing.assert_array_equal(round_to_bf16(near), wanted)
    largest = (2 - 2.0**-7) * 2.0**127
    far = np.array([1e300, -np.inf, np.nan, largest, largest * (1 + 2.0**-10)])
    np.testing.assert_array_equal(round_to_bf16(far), [np.inf, -np.inf, np.nan, largest, largest])
    assert round_to_bf16(np.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(from_bf16_bits(bf16_bits(rounded)), rounded)
    assert is_bf16(rounded)
    assert not is_bf16(ties.astype(np.float32))
    with pytest.raises(ValueError, match=r"`bf16_bits\(values=\.\.\.\)`"):
        bf16_bits(ties.astype(np.float32))

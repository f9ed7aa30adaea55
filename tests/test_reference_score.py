"""The streamed score against a plain numpy statement over a paged cache."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import small_cases

from dsa_crosscheck.reference.cache import key_layout, write_records
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.key_source import CachedKeys, ExactKeys
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import dequantise, quantise
from dsa_crosscheck.reference.record import pack_record
from dsa_crosscheck.reference.score import KEY_BLOCK, ROW_BLOCK, Scores, score
from dsa_crosscheck.reference.trace import Trace, exact_scores

HEADS, DIM = 3, 32
# More than one block of keys and of rows, a request without keys, and a row without visible keys.
COUNTS = [KEY_BLOCK + 88, 0, 70]
ROUNDINGS = ["none", "fp16", "bf16", "bf16-chain"]


@dataclass(frozen=True)
class Problem:
    """Rows of three requests in mixed order, and their keys [keys, DIM] by request."""

    query: np.ndarray
    weights: np.ndarray
    keys: list[np.ndarray]
    request_of_row: np.ndarray
    lengths: np.ndarray


def problem() -> Problem:
    rng = np.random.default_rng(3)
    request = rng.permutation(np.repeat([0, 1, 2], [ROW_BLOCK + 5, 2, 4])).astype(np.int32)
    lengths = np.array([rng.integers(0, COUNTS[r] + 1) for r in request], np.int32)
    lengths[np.flatnonzero(request == 0)[:2]] = [COUNTS[0], 0]
    query = rng.standard_normal((request.size, HEADS, DIM))
    weights = rng.standard_normal((request.size, HEADS))
    return Problem(query, weights, [rng.standard_normal((n, DIM)) for n in COUNTS], request, lengths)


def exact_keys(keys: list[np.ndarray]) -> ExactKeys:
    """The keys in shuffled storage order."""
    order = np.random.default_rng(4).permutation(sum(map(len, keys)))
    request = np.repeat(np.arange(len(keys)), [len(k) for k in keys]).astype(np.int32)
    index = np.concatenate([np.arange(len(k)) for k in keys])
    return ExactKeys(np.concatenate(keys)[order], request[order], index[order])


def bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def fp16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float16).astype(np.float64)


def plain_score(p: Problem, relu: bool, rounding: str) -> Scores:
    """One row at a time, a head axis over all keys."""
    values = np.full((p.lengths.size, int(p.lengths.max())), -np.inf)
    magnitude = np.zeros(values.shape)
    for row, (request, length) in enumerate(zip(p.request_of_row, p.lengths, strict=True)):
        product = p.query[row] @ p.keys[request][:length].T
        if rounding == "bf16-chain":
            product = bf16(product)
        if relu:
            product = np.where(product < 0, 0.0, product)
        weighted = product * p.weights[row][:, None]
        if rounding == "bf16-chain":
            weighted = bf16(weighted)
        total = weighted.sum(axis=0)
        values[row, :length] = {"none": lambda x: x, "fp16": fp16}.get(rounding, bf16)(total)
        magnitude[row, :length] = np.abs(weighted).sum(axis=0)
    return Scores(values, magnitude)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_score_is_the_plain_statement(rounding: str, relu: bool) -> None:
    p = problem()
    got = score(p.query, p.weights, exact_keys(p.keys), p.request_of_row, p.lengths, relu=relu, rounding=rounding)
    expected = plain_score(p, relu, rounding)
    assert got.values.dtype == got.magnitude.dtype == np.float64
    np.testing.assert_array_equal(np.isneginf(got.values), np.isneginf(expected.values))
    if rounding == "none":
        np.testing.assert_allclose(got.values, expected.values, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got.magnitude, expected.magnitude, rtol=0, atol=1e-12)
        return
    # A float64 sum in another order can sit across a rounding boundary: rare, and then one step away.
    live = np.isfinite(expected.values)
    same = got.values[live] == expected.values[live]
    assert same.mean() > 0.999
    np.testing.assert_allclose(got.values[live], expected.values[live], rtol=2.0**-7, atol=2.0**-7)
    np.testing.assert_allclose(got.magnitude, expected.magnitude, rtol=2.0**-7)


def test_roundings_differ() -> None:
    p = problem()
    keys = exact_keys(p.keys)
    scores = [score(p.query, p.weights, keys, p.request_of_row, p.lengths, relu=True, rounding=r) for r in ROUNDINGS]
    assert len({s.values.tobytes() for s in scores}) == len(ROUNDINGS)


@pytest.mark.parametrize("size", [1e-5, 3e-7, 6.1e-5, 65519.0, 65520.0])
def test_fp16_scores_keep_subnormals_and_overflow(size: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float16(np.float32(size)))
    assert one_score(np.array([1.0]), np.array([size]), rounding="fp16") == expected


def test_fp16_scores_round_through_float32() -> None:
    """A float32 implementation meets this one as a tie, which goes to even."""
    assert one_score(np.array([1.0]), np.array([1 + 2.0**-11 + 2.0**-30]), rounding="fp16") == 1.0


def test_relu_is_before_the_weight() -> None:
    """Two heads of opposite products: the negative one adds nothing whatever its weight."""
    query, weights = np.array([[1.0], [-1.0]]), np.array([2.0, 5.0])
    assert one_score(query, weights) == 2.0
    assert one_score(query, weights, relu=False) == -3.0
    assert one_score(query, -weights) == -2.0


def test_magnitude_has_absolute_weights() -> None:
    keys = ExactKeys(np.ones((1, 1)), np.zeros(1, np.int32), np.zeros(1, np.int64))
    got = score(
        np.array([[[1.0], [2.0]]]),
        np.array([[1.0, -3.0]]),
        keys,
        np.zeros(1, np.int32),
        np.ones(1, np.int32),
        relu=True,
        rounding="none",
    )
    assert got.values.tolist() == [[-5.0]]
    assert got.magnitude.tolist() == [[7.0]]


def test_nan_passes_the_relu() -> None:
    assert np.isnan(one_score(np.array([np.nan]), np.array([1.0])))


def one_score(query: np.ndarray, weights: np.ndarray, *, relu: bool = True, rounding: str = "none") -> float:
    """Score of a key of one element 1.0 with one-element heads ``query``."""
    keys = ExactKeys(np.ones((1, 1)), np.zeros(1, np.int32), np.zeros(1, np.int64))
    query = query.reshape(1, -1, 1)
    one = np.ones(1, np.int32)
    return score(query, weights[None], keys, np.zeros(1, np.int32), one, relu=relu, rounding=rounding).values.item()


@pytest.mark.parametrize("name", ["sglang-v4-fp8", "sglang-v4-fp4", "sglang-v4-bf16"])
def test_paged_keys_through_a_permuted_block_table(name: str) -> None:
    """Pages of three requests interleaved at random in a cache full of other bytes."""
    p, c = problem(), PRESETS[name].conventions
    rng = np.random.default_rng(6)
    geometry = Geometry(heads=HEADS, head_dim=DIM, rope_dim=16, page_size=16)
    pages = [-(-n // 16) for n in COUNTS]
    table = np.full((3, max(pages)), -1, np.int32)
    free = rng.permutation(sum(pages) + 3)
    layout = key_layout(c.key, geometry, c.page_order)
    cache = rng.integers(0, 256, (free.size, layout.page_bytes), np.uint8)
    stored = []
    for request, keys in enumerate(p.keys):
        table[request, : pages[request]], free = free[: pages[request]], free[pages[request] :]
        quantised = quantise(keys, c.key)
        records = pack_record(quantised, c.key)
        index = np.arange(len(keys))
        write_records(cache, layout, records, table[request, index // 16].astype(np.int64) * 16 + index % 16)
        stored.append(dequantise(quantised, c.key))
    source = CachedKeys(cache, layout, c.key, table, DIM)
    got = score(p.query, p.weights, source, p.request_of_row, p.lengths, relu=True, rounding="none")
    expected = plain_score(Problem(p.query, p.weights, stored, p.request_of_row, p.lengths), True, "none")
    np.testing.assert_allclose(got.values, expected.values, rtol=0, atol=1e-12)


def test_no_rows_and_no_visible_keys() -> None:
    source = exact_keys([np.ones((2, 4))])
    none = score(
        np.zeros((0, 2, 4)),
        np.zeros((0, 2)),
        source,
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        relu=True,
        rounding="none",
    )
    assert none.values.shape == (0, 0)
    blind = score(
        np.ones((3, 2, 4)),
        np.ones((3, 2)),
        source,
        np.zeros(3, np.int32),
        np.zeros(3, np.int32),
        relu=True,
        rounding="none",
    )
    assert blind.values.shape == (3, 0)


def test_score_errors() -> None:
    source, zero = exact_keys([np.ones((2, 4))]), np.zeros(1, np.int32)
    query, weights = np.ones((1, 2, 4)), np.ones((1, 2))
    with pytest.raises(ValueError, match=r"`score\(rounding=\.\.\.\)` should be none, fp16, .* got 'fp8'"):
        score(query, weights, source, zero, zero, relu=True, rounding="fp8")
    with pytest.raises(ValueError, match=r"`score\(lengths=\.\.\.\)` should not be negative, got -1"):
        score(query, weights, source, zero, zero - 1, relu=True, rounding="none")
    with pytest.raises(ValueError, match=r"`ExactKeys`: request 0 has 2 of the keys 0 to 2"):
        score(query, weights, source, zero, zero + 3, relu=True, rounding="none")


PEAK_MEMORY = """
import resource
import numpy as np
from dsa_crosscheck.reference.hadamard import hadamard
from dsa_crosscheck.reference.score import score

class Keys:
    def block(self, request, start, stop):
        return np.ones((stop - start, 128))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

hadamard(np.ones((1, 128)), order="natural", scale="none")  # starts the compiler
before, rows = peak(), np.zeros(16, np.int32)
score(np.ones((16, 64, 128)), np.ones((16, 64)), Keys(), rows, rows + 32768, relu=True, rounding="none")
print(peak() - before)
"""


def test_peak_memory_does_not_grow_with_a_head_axis() -> None:
    """16 rows x 64 heads x 32,768 keys are 256 MiB of float64; the two results are 8 MiB."""
    grown = float(in_fresh_interpreter(PEAK_MEMORY))
    assert grown < 100


FLOAT64_ANYWAY = """
import jax
import jax.numpy as jnp
import numpy as np
import small_cases
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace, exact_scores

assert not jax.config.jax_enable_x64
inputs, c = small_cases.mixed(), PRESETS["sglang-v4-fp8"].conventions
t = Trace(inputs, c)
stages = [t.pooled_stretch, t.keys.rotated, t.query.rotated, t.scores.values, exact_scores(inputs, c).values]
assert all(s.dtype == np.float64 for s in stages)
assert not jax.config.jax_enable_x64
assert jnp.asarray(1.0).dtype == jnp.float32
print("\\n".join(s.tobytes().hex() for s in stages))
"""


def test_float64_even_when_jax_is_told_float32() -> None:
    """The same bits as in this session, and the caller's own JAX setting left alone."""
    inputs, c = small_cases.mixed(), PRESETS["sglang-v4-fp8"].conventions
    t = Trace(inputs, c)
    assert t.pooled_stretch is not None
    here = [t.pooled_stretch, t.keys.rotated, t.query.rotated, t.scores.values, exact_scores(inputs, c).values]
    there = in_fresh_interpreter(FLOAT64_ANYWAY).split()
    assert there == [stage.tobytes().hex() for stage in here]


def in_fresh_interpreter(program: str) -> str:
    """Standard output of ``program`` in a process without the session's JAX settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""The published indexer: that its stages are what the row ``transformers-v4`` says, in float64 numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("transformers.models.deepseek_v4")

from dsa_crosscheck.compare.candidates.transformers_hidden import HiddenRun, run_hidden
from dsa_crosscheck.compare.candidates.transformers_v4 import TransformersV4
from dsa_crosscheck.fixtures.captured import load_captured
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.fixtures.pooling import pool_overlapping
from dsa_crosscheck.fixtures.projections import seeded_hidden_states, seeded_projections
from dsa_crosscheck.fixtures.rope_table import Yarn, rope_table
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import preset

GEOMETRY = Geometry(topk=64)


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def rotate_last(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Neighbouring pairs of the last channels; ``rows`` [..., rope_dim] are interleaved cos and sin."""
    out = x.copy()
    tail = out[..., -rows.shape[-1] :]
    a, b = tail[..., 0::2].copy(), tail[..., 1::2].copy()
    tail[..., 0::2] = a * rows[..., 0::2] - b * rows[..., 1::2]
    tail[..., 1::2] = a * rows[..., 1::2] + b * rows[..., 0::2]
    return out


def statement(inputs: Inputs) -> dict[str, np.ndarray]:
    """normed, keys, query, scores (nan where no key) and visible lengths, in float64."""
    ratio = inputs.geometry.compress_ratio
    table = inputs.rope_table.astype(np.float64)
    normed = rms_norm(inputs.pooled.astype(np.float64), inputs.norm_weight.astype(np.float64))
    keys = rotate_last(normed, table[inputs.key_index * ratio])
    query = rotate_last(inputs.query.astype(np.float64), table[inputs.query_positions][:, None])
    weights = inputs.gate * (inputs.geometry.head_dim**-0.5 * inputs.geometry.heads**-0.5)
    scores = np.full((inputs.rows, int(inputs.key_counts.max())), np.nan)
    for row, request in enumerate(inputs.request_of_row):
        mine = keys[inputs.key_request == request]
        scores[row, : len(mine)] = weights[row] @ np.maximum(query[row] @ mine.T, 0.0)
    lengths = np.minimum((inputs.query_positions + 1) // ratio, inputs.key_counts[inputs.request_of_row])
    return {"normed": normed, "keys": keys, "query": query, "scores": scores, "lengths": lengths}


def check(inputs: Inputs, observed: dict[str, torch.Tensor], tolerance: float) -> None:
    """Every observed stage within ``tolerance`` of its size, and the selection without exception."""
    wanted = statement(inputs)
    for name in ("normed", "keys", "query"):
        got = observed[name].numpy()
        assert np.abs(got - wanted[name]).max() <= tolerance * np.abs(wanted[name]).max(), name
    for row, length in enumerate(wanted["lengths"]):
        scores = wanted["scores"][row, :length]
        got = observed["scores"].numpy()[row, :length]
        noise = tolerance * np.abs(scores).max(initial=1.0)
        assert np.abs(got - scores).max(initial=0.0) <= noise
        chosen = observed["selection"].numpy()[row]
        count = min(int(length), inputs.geometry.topk)
        assert np.all(chosen[count:] == -1)
        assert np.unique(chosen[:count]).size == count
        assert np.all((chosen[:count] >= 0) & (chosen[:count] < length))
        # In order of falling score, and nothing better left out.
        assert np.all(np.diff(scores[chosen[:count]]) <= 2 * noise)
        left = np.delete(scores, chosen[:count])
        assert left.max(initial=-np.inf) <= scores[chosen[:count]].min(initial=np.inf) + 2 * noise


@pytest.fixture(scope="module")
def candidate() -> TransformersV4:
    return TransformersV4(geometry=GEOMETRY)


@pytest.mark.parametrize("case", ["gaussian", "outlier", "spread", "captured-text"])
def test_run_matches_the_row(case: str, candidate: TransformersV4) -> None:
    inputs = build_case(case, context=2048, rows=12, topk=64, seed=5, geometry=GEOMETRY)
    check(inputs, candidate.run(inputs), 3e-6)


@pytest.mark.parametrize("mistake", ["position", "norm weight", "last key visible"])
def test_the_check_notices(mistake: str, candidate: TransformersV4) -> None:
    inputs = build_case("gaussian", context=512, rows=8, topk=64, seed=5, geometry=GEOMETRY)
    observed = candidate.run(inputs)
    if mistake == "position":
        inputs = replace(inputs, rope_table=np.roll(inputs.rope_table, 1, axis=0))
    elif mistake == "norm weight":
        inputs = replace(inputs, norm_weight=inputs.norm_weight * np.float32(1.0001))
    else:
        later = np.minimum(inputs.query_positions + 4, 511)
        observed = candidate.run(replace(inputs, query_positions=later)) | {"query": observed["query"]}
    with pytest.raises(AssertionError):
        check(inputs, observed, 3e-6)


def test_exact_integers_are_exact_without_a_transform(candidate: TransformersV4) -> None:
    inputs = build_case("exact-integers", context=1024, rows=8, topk=64, seed=2, geometry=GEOMETRY)
    observed = candidate.run(inputs)
    # H t over its root mean square, a power of two: integers over 16.
    assert np.array_equal(observed["keys"].numpy(), inputs.pooled / np.float32(2.0**20 * 16))


def hidden_run(tokens: int) -> HiddenRun:
    geometry = replace(GEOMETRY, topk=128)
    positions = np.array([0, 2, 3, 7, 510, 511, 512, 515, tokens // 2, tokens - 1])
    states, weights = seeded_hidden_states(3, tokens, 192), seeded_projections(4, 192, geometry)
    return run_hidden(states, weights, positions, geometry, Yarn())


@pytest.mark.parametrize("tokens", [1026, pytest.param(4096, marks=pytest.mark.slow)])
def test_generated_hidden_states(tokens: int) -> None:
    run = hidden_run(tokens)
    assert run.inputs.kv_score is not None
    assert run.inputs.position_bias is not None
    # Chunks of 512 tokens: the group after a chunk's end takes its overlap from the library's cache.
    wanted = pool_overlapping(run.inputs.kv_score, run.inputs.position_bias)
    assert run.observed["pooled"].shape == (tokens // 4, 128)
    assert np.abs(run.observed["pooled"].numpy() - wanted).max() < 5e-6
    check(run.inputs, run.observed, 3e-6)


def test_captured_hidden_states() -> None:
    captured = load_captured()
    seed, gain = int(captured.attributes["weights_seed"]), float(captured.attributes["weights_gain"])
    weights = seeded_projections(seed, captured.hidden.shape[1], GEOMETRY, gain)
    tokens = captured.hidden.shape[0]
    within = np.flatnonzero(captured.query_positions < tokens)
    run = run_hidden(captured.hidden, weights, captured.query_positions[within], GEOMETRY, Yarn())
    check(run.inputs, run.observed, 5e-6)
    # The module's linear layers give what the capture stored, to float32 and bfloat16 rounding.
    kept = captured.kv_score.shape[0]
    assert run.inputs.kv_score is not None
    assert np.abs(run.inputs.kv_score[:kept] - captured.kv_score).max() < 1e-4
    assert np.abs(run.observed["pooled"].numpy() - captured.pooled[: tokens // 4]).max() < 1e-4
    order = np.searchsorted(captured.query_positions, run.inputs.query_positions)
    assert np.abs(run.inputs.query - captured.query[order]).max() <= 2.0**-8 * np.abs(captured.query).max()


def test_the_librarys_rotary_table_is_ours_to_float32_angles() -> None:
    table = hidden_run(1026).inputs.rope_table
    exact = rope_table(1026, 64, yarn=Yarn())
    # Two roundings of an angle of up to 1026.
    assert np.abs(table - exact).max() < 1026 * 2.0**-22
    plain = rope_table(1026, 64)
    assert np.abs(table - plain).max() > 0.1


def test_pool_stage(candidate: TransformersV4) -> None:
    inputs = build_case("gaussian", context=1024, rows=1, seed=1, geometry=GEOMETRY)
    assert inputs.kv_score is not None
    assert inputs.position_bias is not None
    bias = torch.from_numpy(inputs.position_bias)
    for tokens in (512, 9, 8, 3, 0):
        kv_score = inputs.kv_score[:tokens]
        pooled = candidate.pool(torch.from_numpy(kv_score), bias)
        assert pooled.shape == (tokens // 4, 128)
        wanted = pool_overlapping(kv_score, inputs.position_bias)
        assert np.abs(pooled.numpy() - wanted).max(initial=0.0) < 2e-6


def test_store_keys_stage(candidate: TransformersV4) -> None:
    inputs = build_case("gaussian", context=1024, rows=1, seed=1, geometry=GEOMETRY)
    slots = inputs.slots.copy()
    slots[7] = -1
    cache = torch.full((inputs.pages, 64 * 512), 255, dtype=torch.uint8)
    candidate.store_keys(
        torch.from_numpy(inputs.pooled),
        torch.from_numpy(inputs.norm_weight),
        torch.from_numpy(inputs.rope_table),
        torch.from_numpy(inputs.key_index * 4),
        torch.from_numpy(slots),
        cache,
    )
    stored = cache.numpy().view(np.float32).reshape(-1, 128)
    wanted = statement(inputs)["keys"]
    written = slots >= 0
    assert np.abs(stored[slots[written]] - wanted[written]).max() < 3e-6
    untouched = np.ones(len(stored), dtype=bool)
    untouched[slots[written]] = False
    assert np.all(cache.numpy().reshape(-1, 512)[untouched] == 255)


def test_store_keys_in_any_order_and_none(candidate: TransformersV4) -> None:
    inputs = build_case("gaussian", context=1024, rows=1, seed=1, geometry=GEOMETRY)
    caches = []
    for order in (np.arange(inputs.keys), np.random.default_rng(0).permutation(inputs.keys), np.arange(0)):
        cache = torch.zeros((inputs.pages, 64 * 512), dtype=torch.uint8)
        candidate.store_keys(
            torch.from_numpy(inputs.pooled[order]),
            torch.from_numpy(inputs.norm_weight),
            torch.from_numpy(inputs.rope_table),
            torch.from_numpy(inputs.key_index[order] * 4 + 3),
            torch.from_numpy(inputs.slots[order]),
            cache,
        )
        caches.append(cache)
    assert torch.equal(caches[0], caches[1])
    assert caches[0].any()
    assert not caches[2].any()


def test_select_stage(candidate: TransformersV4) -> None:
    scores = torch.tensor(
        [[3.0, 1.0, 2.0, 9.0], [3.0, 1.0, 2.0, 9.0], [3.0, 1.0, 2.0, 9.0], [-1.0, torch.nan, 0.0, 5.0]]
    )
    lengths = torch.tensor([3, 0, 4, 3], dtype=torch.int32)
    assert candidate.select(scores, lengths, 2).tolist() == [[0, 2], [-1, -1], [3, 0], [1, 2]]
    assert candidate.select(scores[:1], lengths[:1], 6).tolist() == [[0, 2, 1, -1, -1, -1]]
    assert candidate.select(torch.zeros(2, 0), torch.zeros(2, dtype=torch.int32), 2).tolist() == [[-1, -1]] * 2


def test_zero_scores_tie_but_are_complete(candidate: TransformersV4) -> None:
    inputs = build_case("plateau", context=2048, rows=8, topk=64, seed=3, geometry=GEOMETRY)
    check(inputs, candidate.run(inputs), 3e-6)


def test_what_the_row_says_in_words() -> None:
    row = preset("transformers-v4").conventions
    assert (row.norm, row.norm_eps, row.rope_pairing, row.rope_dims) == ("rms", 1e-6, "interleaved", "last")
    assert (row.rope_position, row.causal, row.topk_padding) == ("group-first", "finished-groups", "minus-one")
    assert (row.topk_nan, row.topk_order) == ("first", "score")


def test_errors(candidate: TransformersV4) -> None:
    with pytest.raises(ValueError, match=r"`TransformersV4\(geometry=\.\.\.\)` should have compress_ratio"):
        TransformersV4(geometry=Geometry(compress_ratio=1))
    with pytest.raises(ValueError, match=r"`TransformersV4\(conventions=\.\.\.\)` should be None or the preset"):
        TransformersV4(preset("sglang-v4-fp8").conventions)
    with pytest.raises(ValueError, match=r"`pool\(kv_score=\.\.\.\)` should have shape \[8, 512\], got \[8, 500\]"):
        candidate.pool(torch.zeros(8, 500), torch.zeros(4, 256))
    with pytest.raises(ValueError, match=r"`store_keys\(norm_weight=\.\.\.\)` should have shape \[128\]"):
        candidate.store_keys(
            torch.zeros(1, 128),
            torch.zeros(2, 128),
            torch.zeros(8, 64),
            torch.zeros(1, dtype=torch.int64),
            torch.zeros(1, dtype=torch.int64),
            torch.zeros(1, 64 * 512, dtype=torch.uint8),
        )
    other = build_case("gaussian", context=64, rows=1, geometry=Geometry(heads=8))
    with pytest.raises(ValueError, match=r"`run\(inputs=\.\.\.\)` should have heads=64, got 8"):
        candidate.run(other)
    gap = build_case("gaussian", context=64, rows=1, geometry=GEOMETRY)
    slots = gap.slots.copy()
    slots[0] = -1
    with pytest.raises(ValueError, match=r"`run\(inputs=\.\.\.\)` should store keys 0 to 15 of request 0"):
        candidate.run(replace(gap, slots=slots))
    with pytest.raises(ValueError, match=r"`run_hidden\(positions=\.\.\.\)` should be in \[0, 8\)"):
        run_hidden(seeded_hidden_states(0, 8, 16), seeded_projections(0, 16, GEOMETRY), np.array([8]), GEOMETRY)

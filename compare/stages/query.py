"""Stage ``encode_query``: queries and gates to codes and head weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.code_certificate import certify_scales
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.codes import judge_codes, judge_scales, rescaled
from dsa_crosscheck.compare.stages.values import judge_values
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.models import FP32_TINY
from dsa_crosscheck.reference.quantise import Quantised, quantise
from dsa_crosscheck.reference.record import unpack_record

WEIGHT_ROUNDINGS = 6
"""Forming the constant factor (three), gate times it, the scale itself, and weight times scale."""


def run_query(candidate: Any, setup: Setup) -> tuple[np.ndarray, ...]:
    """The candidate's codes and head weights of the inputs' queries and gates."""
    inputs, trace = setup.inputs, setup.trace
    given = (inputs.query, inputs.gate, inputs.rope_table, inputs.query_positions)
    codes, weights = call(candidate, "encode_query", *given, results=2)
    expect("encode_query", "codes", codes, trace.codes.shape, (np.uint8,))
    expect("encode_query", "weights", weights, trace.weights.shape, (np.float32,))
    return codes, weights


def judge_query(outputs: tuple[np.ndarray, ...], setup: Setup) -> list[StageResult]:
    """Query scales (where they are stored), query codes, and head weights."""
    codes, weights = outputs
    inputs, trace, c = setup.inputs, setup.trace, setup.conventions
    head_dim = inputs.geometry.head_dim
    want = quantise(trace.query.rotated, c.query)
    got = unpack_record(codes, c.query, head_dim)
    values, bound = trace.query.rotated, setup.query_bound.rotated

    def place(at: tuple[int, ...]) -> str:
        return f"row {at[0]} head {at[1]}" + (f" d{at[2]}" if len(at) > 2 else "")

    def scale_at(at: tuple[int, ...]) -> str:
        return f"row {at[0]} head {at[1]} g{at[2]}"

    results = []
    if c.query_scale_in == "record":
        scales, constant = judge_scales("query scales", values, bound, got, want, c.query, scale_at, inputs.geometry)
        results.append(scales)
        values, bound = rescaled(values, bound, constant)
    elif c.query.scale_bytes:
        got = Quantised(got.codes, _folded_scales(weights, trace.weights, want.scales, c.query))
        if c.query.scale == "fp32":
            # Not seen, it may be any admissible one, and every scaled value moves with it.
            bound = bound + np.abs(values) * _scale_freedom(setup, got, want)
    results.append(judge_codes("query codes", values, bound, got, want, c.query, place))
    freedom = _weight_bound(setup, got, want)
    expected = _rescaled(trace.weights, got, want) if c.query_scale_in == "weights" else trace.weights
    results.append(judge_values("head weights", weights, expected, freedom, place, geometry=inputs.geometry))
    return results


def _folded_scales(weights: np.ndarray, want: np.ndarray, scales: np.ndarray, codec: Codec) -> np.ndarray:
    """The scales a candidate must have used, told by its weights, where a scale is a power of two.

    A float32 scale is taken as the reference's: its freedom is part of the weight's bound.
    """
    if codec.scale != "power-of-two":
        return scales
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(weights.astype(np.float64) / want)
        exponent = np.rint(np.log2(np.where((ratio > 0.25) & (ratio < 4.0), ratio, 1.0)))
    return (scales * np.exp2(exponent)[..., None]).astype(np.float32)


def _rescaled(weights: np.ndarray, got: Quantised, want: Quantised) -> np.ndarray:
    """Reference weights carried over to the candidate's folded scales, where those are told."""
    return weights * (got.scales[..., 0].astype(np.float64) / want.scales[..., 0].astype(np.float64))


def _weight_bound(setup: Setup, got: Quantised, want: Quantised) -> np.ndarray:
    """gamma of the roundings, times the weight; a folded scale adds its own freedom.

    Weights rounded to bfloat16 may cross one of its boundaries: one unit roundoff each way.
    """
    c, trace = setup.conventions, setup.trace
    relative = np.full(trace.weights.shape, setup.model.gamma(WEIGHT_ROUNDINGS))
    if c.weight_dtype == "bf16":
        relative += 2.0**-7
    if c.query_scale_in == "weights" and c.query.scale == "fp32":
        relative += _scale_freedom(setup, got, want)[..., 0]
    elif c.query_scale_in == "weights":
        # A scale that no admissible amax gives leaves no freedom at all.
        scales = certify_scales(trace.query.rotated, setup.query_bound.rotated, got.scales, c.query)
        relative = np.where(scales.explained[..., 0], relative, 0.0)
    return relative * np.abs(trace.weights) * 2.0 + FP32_TINY


def _scale_freedom(setup: Setup, got: Quantised, want: Quantised) -> np.ndarray:
    """Relative distance of the farthest admissible scale from the reference's, [rows, heads, 1]."""
    interval = certify_scales(setup.trace.query.rotated, setup.query_bound.rotated, got.scales, setup.conventions.query)
    reference = want.scales.astype(np.float64)
    return np.maximum(interval.high - reference, reference - interval.low) / reference

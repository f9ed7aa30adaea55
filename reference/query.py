"""The query path: query -> roped -> rotated -> codes, and the head weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.hadamard import hadamard
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.quantise import Quantised, code_values, dequantise, quantise
from dsa_crosscheck.reference.record import pack_record, unpack_record
from dsa_crosscheck.reference.rope import rope


@dataclass(frozen=True)
class QueryStages:
    """Float64 [rows, heads, head_dim]; ``rotated`` is in stored order, ``unrounded_*`` as for keys."""

    roped: np.ndarray
    rotated: np.ndarray
    unrounded_roped: np.ndarray
    unrounded_rotated: np.ndarray


def rotate_query(
    query: np.ndarray, rope_table: np.ndarray, positions: np.ndarray, conventions: Conventions
) -> QueryStages:
    """RoPE at each row's raw position, then Hadamard, in float64; bf16 points as for keys."""
    c = conventions
    raw_roped = rope(query, rope_table, positions, pairing=c.rope_pairing, dims=c.rope_dims)
    roped = round_bf16(raw_roped) if "query-roped" in c.bf16_points else raw_roped
    raw_rotated = roped
    if c.hadamard_query:
        assert c.hadamard_order is not None
        assert c.hadamard_scale is not None
        raw_rotated = hadamard(roped, order=c.hadamard_order, scale=c.hadamard_scale)
    raw_rotated = raw_rotated[..., lane_permutation(c.lane_order_query, query.shape[-1])]
    rotated = round_bf16(raw_rotated) if "query-rotated" in c.bf16_points else raw_rotated
    return QueryStages(roped, rotated, raw_roped, raw_rotated)


def encode_query(rotated: np.ndarray, gate: np.ndarray, conventions: Conventions) -> tuple[np.ndarray, np.ndarray]:
    """Query codes and head weights.

    Returns ``codes`` uint8 [rows, heads, bytes]: the record of each head, without its scale bytes
    when ``query_scale_in`` is ``weights``; and ``weights`` float64 [rows, heads] with everything
    folded in that the conventions fold.
    """
    quantised = quantise(rotated, conventions.query)
    folded = conventions.query_scale_in == "weights"
    codes = pack_record(quantised, conventions.query, with_scales=not folded)
    return codes, head_weights(gate, rotated.shape[-1], quantised, conventions)


def head_weights(gate: np.ndarray, head_dim: int, quantised: Quantised, conventions: Conventions) -> np.ndarray:
    """gate [rows, heads] times the constant factor, and times the query scale where it is folded.

    A scale can be folded only if a head has one: ``ValueError`` for grouped scales.
    """
    weights = np.asarray(gate, np.float64)
    if conventions.weight_scale != "none":
        weights = weights * (head_dim**-0.5 * gate.shape[-1] ** -0.5)
    if conventions.weight_dtype == "bf16":
        weights = round_bf16(weights)
    if conventions.query_scale_in != "weights":
        return weights
    if quantised.scales.shape[-1] != 1:
        raise ValueError(
            "`Conventions(query_scale_in='weights')` needs one scale a head, "
            f"got {quantised.scales.shape[-1]} ({conventions.query.format})"
        )
    return weights * quantised.scales[..., 0].astype(np.float64)


def query_values(codes: np.ndarray, conventions: Conventions, head_dim: int) -> np.ndarray:
    """Float64 [rows, heads, head_dim] that the scorer multiplies: decoded, with scales if the record has them."""
    quantised = unpack_record(codes, conventions.query, head_dim)
    if quantised.scales.shape[-1] == 0:
        return code_values(quantised.codes, conventions.query.spec)
    return dequantise(quantised, conventions.query)

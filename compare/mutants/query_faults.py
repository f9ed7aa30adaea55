"""Faults of the query path and the head weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.mutants.fault import Fault, Right
from dsa_crosscheck.reference.quantise import Quantised
from dsa_crosscheck.reference.query import head_weights

Tensor = torch.Tensor
Encoded = tuple[Tensor, Tensor]


def _position_off_by_one(right: Right, query: Tensor, gate: Tensor, table: Tensor, positions: Tensor) -> Encoded:
    return right.candidate.encode_query(query, gate, table, (positions - 1).clamp(min=0))


def _heads_shifted(right: Right, *args: Tensor) -> Encoded:
    codes, weights = right.candidate.encode_query(*args)
    return codes.roll(1, 1), weights


def _row_of_neighbour(right: Right, *args: Tensor) -> Encoded:
    codes, weights = right.candidate.encode_query(*args)
    codes = codes.clone()
    row = int(args[-1].argmax())
    codes[row] = codes[row - 1]
    return codes, weights


def _head_dropped(right: Right, *args: Tensor) -> Encoded:
    codes, weights = right.candidate.encode_query(*args)
    weights = weights.clone()
    weights[:, -1] = 0.0
    return codes, weights


def _scale_not_folded(right: Right, query: Tensor, gate: Tensor, table: Tensor, positions: Tensor) -> Encoded:
    codes, _ = right.candidate.encode_query(query, gate, table, positions)
    beside = replace(right.conventions, query_scale_in="record" if right.conventions.query_scale_in else None)
    no_scales = Quantised(codes.numpy(), np.zeros((*codes.shape[:2], 0), np.float32))
    weights = head_weights(gate.numpy(), query.shape[-1], no_scales, beside)
    return codes, torch.from_numpy(weights.astype(np.float32))


def _gate_of_neighbour(right: Right, query: Tensor, gate: Tensor, table: Tensor, positions: Tensor) -> Encoded:
    return right.candidate.encode_query(query, gate.roll(1, 0), table, positions)


def _weights_bf16(right: Right, *args: Tensor) -> Encoded:
    codes, weights = right.candidate.encode_query(*args)
    return codes, weights.bfloat16().float()


def _fault(name: str, what: str, method: Callable[..., Any]) -> Fault:
    return Fault(name, "encode_query", what, method)


QUERY_FAULTS = (
    _fault("query-position-off-by-one", "queries are rotated by the position before theirs", _position_off_by_one),
    _fault("query-heads-shifted", "each head has the codes of the head before", _heads_shifted),
    _fault(
        "query-row-of-neighbour", "the row at the largest position has the codes of the row before", _row_of_neighbour
    ),
    _fault("query-head-dropped", "the last head has weight zero", _head_dropped),
    _fault("query-scale-not-folded", "the query scale is not multiplied into the weight", _scale_not_folded),
    _fault("query-gate-of-neighbour", "each row has the gate of the row before", _gate_of_neighbour),
    _fault("query-weights-bf16", "head weights are rounded to bf16", _weights_bf16),
)

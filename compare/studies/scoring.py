"""Scores of a study's operands: in float64 by the reference, or summed in float32."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.studies.operands import ArrayKeys, Encoding, Operands
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.score import score

SCORE_DTYPES = ("fp32", "fp16", "bf16")
FLOAT32_KEYS = 2048
FLOAT32_ROWS = 8


def scores_of(operands: Operands, query: Encoding, key: Encoding) -> np.ndarray:
    """Float64 scores [rows, longest] of what the encodings leave; -inf past a row's length."""
    i = operands.inputs
    keys = operands.source(key)
    return score(
        query(operands.query),
        operands.weights,
        keys,
        i.request_of_row,
        operands.lengths,
        relu=operands.conventions.relu,
        rounding="none",
    ).values


def float32_scores(operands: Operands, query: Encoding, key: Encoding) -> np.ndarray:
    """The same with float32 operands and sums, by this machine's matrix product; float64 [rows, longest]."""
    i, lengths = operands.inputs, operands.lengths
    queries = query(operands.query).astype(np.float32)
    weights = operands.weights.astype(np.float32)
    keys = operands.source(key)
    out = np.full((lengths.size, int(lengths.max(initial=0))), -np.inf)
    for request in np.unique(i.request_of_row):
        rows = np.flatnonzero(i.request_of_row == request)
        for first in range(0, rows.size, FLOAT32_ROWS):
            _float32_rows(queries, weights, keys, int(request), rows[first : first + FLOAT32_ROWS], lengths, out)
    return out


def _float32_rows(
    queries: np.ndarray,
    weights: np.ndarray,
    keys: ArrayKeys,
    request: int,
    rows: np.ndarray,
    lengths: np.ndarray,
    out: np.ndarray,
) -> None:
    heads, dim = queries.shape[1:]
    longest = int(lengths[rows].max())
    for start in range(0, longest, FLOAT32_KEYS):
        stop = min(start + FLOAT32_KEYS, longest)
        block = keys.block(request, start, stop).astype(np.float32)
        product = np.maximum(queries[rows].reshape(-1, dim) @ block.T, np.float32(0)).reshape(rows.size, heads, -1)
        total = np.matmul(weights[rows][:, None, :], product)[:, 0]
        out[rows, start:stop] = np.where(np.arange(start, stop) < lengths[rows, None], total, -np.inf)


def as_dtype(scores: np.ndarray, dtype: str) -> np.ndarray:
    """Scores through float32 to ``dtype``, one of ``SCORE_DTYPES``, as float64; fp16 overflows to inf."""
    if dtype == "bf16":
        return round_bf16(scores)
    narrow = scores.astype(np.float32)
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            narrow = narrow.astype(np.float16)
    elif dtype != "fp32":
        raise ValueError(f"`as_dtype(dtype=...)` should be one of {SCORE_DTYPES}, got {dtype!r}")
    return narrow.astype(np.float64)

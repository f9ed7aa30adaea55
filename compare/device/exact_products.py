"""Scores of two or three exact products in a vector, through a candidate's own ``score``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.reference.conventions import Conventions

HEAD_DIM, HEADS, PAGE = 128, 32, 64
FORMATS = {"fp8": "sglang-v4-fp8", "bf16": "sglang-v4-bf16"}
"""Presets by the name of the operands' format."""

DTYPES: dict[str, Any] = {"fp8-e4m3fn": ml_dtypes.float8_e4m3fn, "bf16": ml_dtypes.bfloat16}


def score_products(candidate: Any, large: float, small: float, third: tuple[int, float] | None = None) -> np.ndarray:
    """Scores float64 [i, j] of vectors whose products are ``large`` at element i, ``small`` at j, else 0.

    ``third``: an element and its product, the same in every vector. NaN where two of them would share an
    element. One head has the weight 1 and the others weigh and hold nothing, key scales are 1: a score is
    the sum of its products wherever that is positive, each formed exactly from two operands.

    A query per j, a request of its own with a key per i on two pages of 64. ``ValueError`` for a product
    that is not of two numbers of the candidate's format; ``CandidateFault`` as in ``call``.
    """
    c: Conventions = candidate.conventions
    dim = np.arange(HEAD_DIM)
    query = np.zeros((HEAD_DIM, HEAD_DIM), DTYPES[c.query.format])
    key = np.zeros((HEAD_DIM, HEAD_DIM, HEAD_DIM), DTYPES[c.key.format])
    left, right = _operands(large, c)
    query[:] = left
    key[:, dim, dim] = right
    query[dim, dim], key[dim, :, dim] = _operands(small, c)
    clash = np.eye(HEAD_DIM, dtype=bool)
    if third is not None:
        place, product = third
        query[:, place], key[:, :, place] = _operands(product, c)
        clash[place], clash[:, place] = True, True
    scores = _score(candidate, query.view(np.uint8), key.view(np.uint8))
    return np.where(clash, np.nan, scores.T)


def factors(product: float) -> tuple[float, float]:
    """Two numbers of equal exponents, or nearly, whose product is ``product``; the first has its mantissa."""
    mantissa, exponent = np.frexp(product)
    half = (int(exponent) - 1) // 2
    rest = int(exponent) - 1 - half
    return float(np.ldexp(2 * abs(mantissa), half)), float(np.ldexp(np.sign(product), rest))


def _operands(product: float, c: Conventions) -> tuple[float, float]:
    """Factors of ``product`` that a query and a key hold exactly."""
    found = factors(product)
    for value, name in zip(found, (c.query.format, c.key.format), strict=True):
        if float(np.float32(value).astype(DTYPES[name])) != value:
            raise ValueError(f"`score_products` should be given products of two {name} numbers, got {value}")
    return found


def _score(candidate: Any, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Scores float64 [row, key] of bytes ``query`` [row, bytes] in head 0 with its own ``key`` [row, key, bytes]."""
    c: Conventions = candidate.conventions
    rows, keys = key.shape[:2]
    pages = keys // PAGE
    codes = np.zeros((rows, HEADS, query.shape[1]), np.uint8)
    codes[:, 0] = query
    weights = np.zeros((rows, HEADS), np.float32)
    weights[:, 0] = 1.0
    values = key.reshape(rows * pages, -1)
    scales = np.ones((rows * pages, PAGE * c.key.scale_bytes // 4), np.float32).view(np.uint8)
    table = np.arange(rows * pages, dtype=np.int32).reshape(rows, pages)
    lengths = np.full(rows, keys, np.int32)
    cache = np.concatenate([values, scales], axis=1)
    (got,) = call(candidate, "score", codes, weights, cache, table, np.arange(rows, dtype=np.int32), lengths)
    return expect("score", "scores", got, (rows, keys), (np.float32,)).astype(np.float64)

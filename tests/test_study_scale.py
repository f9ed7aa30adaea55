"""Benchmarks, run on an idle machine by ``pytest -m slow``: a million tokens, and the scorer's rate and growth."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dsa_crosscheck.reference.score import score

pytestmark = pytest.mark.slow

HEADS, DIM = 64, 128


class Keys:
    """Given float64 keys of one request."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def block(self, request: int, start: int, stop: int) -> np.ndarray:
        """Keys start..stop-1."""
        return self.values[start:stop]


def operands(rows: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(rows, HEADS, DIM)), rng.normal(size=(rows, HEADS)), rng.normal(size=(keys, DIM))


def seconds_to_score(query: np.ndarray, weights: np.ndarray, keys: np.ndarray) -> float:
    rows = query.shape[0]
    requests, lengths = np.zeros(rows, np.int32), np.full(rows, keys.shape[0])
    begun = time.perf_counter()
    score(query, weights, Keys(keys), requests, lengths, relu=True, rounding="none")
    return time.perf_counter() - begun


def test_a_million_tokens_in_90_seconds_and_3_gb() -> None:
    """262,144 keys, 64 rows, exact and fp8, from generating the inputs to overlaps."""
    script = Path(__file__).parent / "million_tokens.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 64
    assert 0.9 < report["overlap"] < 1
    assert report["peak_bytes"] < 3e9, report
    assert report["seconds"] < 90, report


def test_scoring_is_at_least_as_fast_as_the_matrix_product_alone() -> None:
    """The same operands through numpy's DGEMM, which has no relu and no head sum; best of each."""
    query, weights, keys = operands(16, 32768)
    scoring, product = [], []
    for _ in range(6):
        scoring.append(seconds_to_score(query, weights, keys))
        begun = time.perf_counter()
        query.reshape(-1, DIM) @ keys.T
        product.append(time.perf_counter() - begun)
    assert min(scoring[1:]) <= min(product[1:])  # the first call compiles


@pytest.mark.parametrize("axis", ["keys", "rows"])
def test_work_grows_linearly(axis: str) -> None:
    """From n to 8 n, time grows by 8 within a factor of 1.5: an extra pass over pairs would show as 64."""
    sizes = {"keys": [(16, 16384), (16, 131072)], "rows": [(16, 16384), (128, 16384)]}[axis]
    problems = [operands(*size) for size in sizes]
    seconds_to_score(*problems[0])
    small, large = (min(seconds_to_score(*problem) for _ in range(4)) for problem in problems)
    assert 8 / 1.5 < large / small < 8 * 1.5

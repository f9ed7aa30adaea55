"""Top-k of rows that are filtered by group maxima, and of rows that are cut into parts.

Those that a cluster shares on the last level are in test_cuda_topk_cluster.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_cuda_topk import check

ROWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "random": lambda rng, n: rng.standard_normal(n),
    "rectified": lambda rng, n: np.maximum(rng.standard_normal(n), 0.0),
    "few values": lambda rng, n: rng.integers(0, 7, n),
    "rising": lambda rng, n: np.arange(n),
    "best together": lambda rng, n: np.where(np.arange(n) // 3000 == 2, 1e3, 0.0) + rng.random(n),
    "one value": lambda rng, n: np.full(n, -2.5),
    "NaN among them": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.standard_normal(n)),
    "infinities": lambda rng, n: np.where(rng.random(n) < 0.9, -np.inf, np.inf),
    "huge range": lambda rng, n: rng.standard_normal(n) * 10.0 ** rng.integers(-30, 30, n),
    "both zeros": lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, 0.0),
}


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("k", [512, 2048])
@pytest.mark.parametrize("columns", [8193, 16384, 16388, 32768])
def test_filtered(what: str, k: int, columns: int) -> None:
    rng = np.random.default_rng(columns + k)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(2)])
    check(rows, [columns, columns - 3], k)


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize(("columns", "k"), [(32769, 512), (70001, 2048), (131072, 1)])
def test_parts(what: str, columns: int, k: int) -> None:
    rng = np.random.default_rng(columns)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(3)])
    check(rows, [columns, 40000 if columns > 40000 else 9000, 100], k)


def test_parts_of_parts() -> None:
    # 33 parts of 2048 each are more than one block takes.
    rng = np.random.default_rng(0)
    check(rng.standard_normal((2, 1 << 20)), [1 << 20, (1 << 20) - 4097], 2048)


def test_unaligned_rows() -> None:
    rng = np.random.default_rng(1)
    check(rng.standard_normal((4, 20001)), [20001, 20000, 19999, 8193], 600)

"""Top-k of rows that are filtered by group maxima, and of rows that are cut into parts.

Those that a cluster shares are in test_cuda_topk_cluster.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from test_cuda_topk import check, expected

from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

SIGNALLING_NAN = np.array([0xFF800001], np.uint32).view(np.float32)

ROWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "random": lambda rng, n: rng.standard_normal(n),
    "rectified": lambda rng, n: np.maximum(rng.standard_normal(n), 0.0),
    "few values": lambda rng, n: rng.integers(0, 7, n),
    "rising": lambda rng, n: np.arange(n),
    "best together": lambda rng, n: np.where(np.arange(n) // 3000 == 2, 1e3, 0.0) + rng.random(n),
    "one value": lambda rng, n: np.full(n, -2.5),
    "NaN among them": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.standard_normal(n)),
    "signalling NaN among them": lambda rng, n: np.where(
        rng.random(n) < 0.4, SIGNALLING_NAN, rng.standard_normal(n, np.float32)
    ),
    "few numbers": lambda rng, n: np.where(np.arange(n) % 97 == 3, rng.standard_normal(n), np.nan),
    "infinities": lambda rng, n: np.where(rng.random(n) < 0.9, -np.inf, np.inf),
    "huge range": lambda rng, n: rng.standard_normal(n) * 10.0 ** rng.integers(-30, 30, n),
    "both zeros": lambda rng, n: np.where(rng.random(n) < 0.5, -0.0, 0.0),
}


def selected(scores: torch.Tensor, lengths: torch.Tensor, k: int, blocks: int) -> torch.Tensor:
    """Selection by the kernels for the tensors' device, where at most ``blocks`` blocks may share a row."""
    kernels = kernels_for(scores.device)
    workspace = lengths.new_empty(kernels.topk_workspace(*scores.shape, k, blocks))
    out = lengths.new_full((scores.shape[0], k), -7)
    kernels.topk(scores, lengths, workspace, out, blocks)
    return out


def check_shared(scores: np.ndarray, lengths: list[int] | np.ndarray, k: int, blocks: int) -> None:
    """Like ``check``, where at most ``blocks`` blocks may share a row."""
    scores = np.ascontiguousarray(scores, np.float32)
    lengths = np.asarray(lengths, np.int32)
    got = selected(torch.from_numpy(scores), torch.from_numpy(lengths), k, blocks)
    np.testing.assert_array_equal(got.numpy(), expected(scores, lengths, k))


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("k", [512, 2048])
@pytest.mark.parametrize("columns", [8193, 16384, 16388, 32768])
def test_filtered(what: str, k: int, columns: int) -> None:
    rng = np.random.default_rng(columns + k)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(2)])
    check(rows, [columns, columns - 3], k)


@pytest.mark.parametrize("columns", [12000, 20000])
@pytest.mark.parametrize("count", [6143, 6144, 6145, 6160])
def test_as_many_as_there_is_room_for(columns: int, count: int) -> None:
    """So many scores reach the bound, the best of them in too few groups to raise it."""
    rng = np.random.default_rng(count)
    scores = -1.0 - rng.random((4, columns))
    for row in scores:
        at = np.sort(rng.choice(columns, count, replace=False))
        row[at] = 3.0
        row[rng.choice(at, 1900, replace=False)] = 3.5
    check(scores, [columns] * 4, 2048)


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize(("columns", "k"), [(32769, 512), (70001, 2048), (131072, 1)])
def test_parts(what: str, columns: int, k: int) -> None:
    rng = np.random.default_rng(columns)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(3)])
    check_shared(rows, [columns, 40000 if columns > 40000 else 9000, 100], k, 1)


@pytest.mark.parametrize("blocks", [1, 8])
def test_parts_of_parts(blocks: int) -> None:
    # The best 2048 of each part are more than one block takes: parts again, or a cluster.
    rng = np.random.default_rng(0)
    check_shared(rng.standard_normal((2, 1 << 20)), [1 << 20, (1 << 20) - 4097], 2048, blocks)


def test_unaligned_rows() -> None:
    rng = np.random.default_rng(1)
    check(rng.standard_normal((4, 20001)), [20001, 20000, 19999, 8193], 600)

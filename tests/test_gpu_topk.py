"""On a GPU: top-k of rows that clusters of blocks share, and of the same rows without clusters.

Run by `pytest -m gpu`, on a machine with a CUDA GPU and nvcc.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_cuda_topk import expected
from test_cuda_topk_cluster import GATHERED, lengths_around
from test_cuda_topk_long import ROWS, selected

from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

RUNS = 20
KS = [1, 512, 2048]


def check(scores: np.ndarray, lengths: np.ndarray, k: int) -> None:
    """``RUNS`` runs with as many blocks a row as the device takes, and one with each smaller number."""
    right = torch.from_numpy(expected(scores, lengths, k))
    on_device = torch.from_numpy(scores).cuda(), torch.from_numpy(lengths.astype(np.int32)).cuda()
    most = kernels_for(on_device[0].device).topk_blocks(on_device[0])
    for blocks in [most] * RUNS + [1 << i for i in range(most.bit_length() - 1)]:
        got = selected(*on_device, k, blocks).cpu()
        assert torch.equal(got, right), f"blocks {blocks}, rows {(got != right).any(1).nonzero().flatten().tolist()}"


def test_clusters_are_used_where_there_are_some() -> None:
    most = kernels_for(torch.device("cuda")).topk_blocks(torch.zeros(1, device="cuda"))
    device = torch.cuda.get_device_properties()
    large = device.major >= 9 and device.shared_memory_per_block_optin >= 128 * 1024  # 12.0 has clusters and 99 KB
    assert most >= 8 if large else most == 1


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("columns", [32769, 65536, 131074, 262144])
def test_whole_rows(what: str, columns: int, k: int) -> None:
    rng = np.random.default_rng(columns + k)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(4)]).astype(np.float32)
    check(rows, np.array([columns, columns - 3, columns // 2 + 1, k + 1]), k)


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("columns", [33001, 131071, 262143])
def test_lengths(columns: int, k: int) -> None:
    rng = np.random.default_rng(k)
    lengths = np.unique(np.concatenate([lengths_around(columns, k, blocks) for blocks in (4, 16)]))
    check(rng.standard_normal((len(lengths), columns), np.float32), lengths, k)


@pytest.mark.parametrize("count", [GATHERED - 1, GATHERED, GATHERED + 1])
def test_as_many_as_one_block_takes(count: int) -> None:
    rng = np.random.default_rng(count)
    scores = (-1.0 - rng.random((3, 100000))).astype(np.float32)
    for row in scores:
        row[rng.choice(100000, count, replace=False)] = 3.0
    check(scores, np.full(3, 100000), 600)


@pytest.mark.parametrize("k", KS)
def test_many_rows(k: int) -> None:
    rng = np.random.default_rng(k)
    scores = rng.standard_normal((700, 40000), np.float32)
    scores[::7] = np.round(scores[::7] * 3)
    scores[1::7] = np.maximum(scores[1::7], 0.0)
    check(scores, rng.integers(0, 40001, 700), k)


@pytest.mark.parametrize("k", KS)
def test_a_cluster_after_a_level_of_parts(k: int) -> None:
    rng = np.random.default_rng(k)
    columns = 1 << 21
    scores = rng.standard_normal((2, columns), np.float32)
    scores[1] = np.round(scores[1] * 100)
    check(scores, np.array([columns, columns - 4097]), k)

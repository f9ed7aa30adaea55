"""Top-k of rows that a cluster of blocks shares, against numpy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_cuda_topk_long import ROWS, check_shared, selected

from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

SHARE = 16384
"""Scores of a row that one block takes at most."""

GATHERED = 4096
"""Scores that one block of the cluster selects from alone."""


def lengths_around(columns: int, k: int, blocks: int) -> np.ndarray:
    """Lengths at which a row is treated otherwise, and their neighbours."""
    edges = (0, k, GATHERED, 2 * k, 8 * k, 4 * 512 * blocks, *range(SHARE, columns, SHARE), columns)
    near = {edge + step for edge in edges for step in (-5, -1, 0, 1, 3)}
    return np.array(sorted(length for length in near if 0 <= length <= columns), np.int32)


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize(("columns", "k", "blocks"), [(32769, 512, 4), (131072, 2048, 8), (70002, 1, 8)])
def test_whole_rows(what: str, columns: int, k: int, blocks: int) -> None:
    rng = np.random.default_rng(columns + k)
    rows = np.stack([ROWS[what](rng, columns) for _ in range(2)])
    check_shared(rows, [columns, columns - 3], k, blocks)


@pytest.mark.parametrize(("columns", "k", "blocks"), [(33001, 512, 4), (60000, 2048, 8), (32771, 1, 8)])
def test_lengths(columns: int, k: int, blocks: int) -> None:
    rng = np.random.default_rng(k)
    lengths = lengths_around(columns, k, blocks)
    check_shared(rng.standard_normal((len(lengths), columns), np.float32), lengths, k, blocks)


def test_the_largest_cluster() -> None:
    rng = np.random.default_rng(4)
    scores = rng.standard_normal((2, 16 * SHARE), np.float32)
    scores[1] = np.round(scores[1])  # more equals than one block takes
    check_shared(scores, [16 * SHARE, 16 * SHARE - 1], 2048, 16)


@pytest.mark.parametrize("wanted", [1, SHARE // 4, SHARE // 4 + 1])
def test_equals_go_to_the_lowest_index_over_all_blocks(wanted: int) -> None:
    # Eight shares of equals; those above the plateau lie at the end, and leave it ``wanted`` places.
    columns, k = 32776, 2048
    scores = np.zeros((1, columns), np.float32)
    above = max(k - wanted, 0)
    scores[0, columns - above :] = 1.0 + np.arange(above)
    check_shared(scores, [columns], k, 8)


@pytest.mark.parametrize("count", [GATHERED - 1, GATHERED, GATHERED + 1])
def test_as_many_as_one_block_takes(count: int) -> None:
    rng = np.random.default_rng(count)
    scores = -1.0 - rng.random((1, 40000))
    scores[0, rng.choice(40000, count, replace=False)] = 3.0
    check_shared(scores, [40000], 600, 4)


def test_blocks_change_nothing() -> None:
    rng = np.random.default_rng(6)
    scores = torch.from_numpy(rng.integers(-400, 400, (3, 40001)).astype(np.float32))
    lengths = torch.tensor([40001, 39998, 12345], dtype=torch.int32)
    alone = selected(scores, lengths, 1000, 1)
    for blocks in (2, 4, 8, 16):
        assert torch.equal(selected(scores, lengths, 1000, blocks), alone)


@pytest.mark.parametrize("blocks", [0, -2, 3, 32])
def test_bad_blocks(blocks: int) -> None:
    kernels = kernels_for(torch.device("cpu"))
    with pytest.raises(ValueError, match=rf"`blocks` should be a power of two in \[1, 16\], got {blocks}"):
        kernels.topk_workspace(1, 10, 4, blocks)
    one = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=rf"`blocks` should be a power of two in \[1, 16\], got {blocks}"):
        kernels.topk(torch.zeros(1, 10), one, one[:0], one.new_zeros(1, 4), blocks)

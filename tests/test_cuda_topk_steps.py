"""The bound that leaves a cluster's first block few scores to select from: never too high, and seldom much too low."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm_ffi
from test_cuda_topk_long import ROWS

from dsa_crosscheck.cuda_impl.build import load_emulated

SIZES = [
    (1, 8192, 2),
    (16, 65536, 8),
    (2048, 65536, 4),
    (512, 70004, 8),
    (1000, 131072, 8),
    (2048, 262144, 16),
    (512, 262144, 16),
]
"""k, scores of a row and blocks, with twice k groups of 16 scores."""


@pytest.fixture(scope="module")
def probe() -> tvm_ffi.Module:
    return load_emulated([Path(__file__).parent / "probes" / "steps_probe.cu"])


def reached(probe: tvm_ffi.Module, scores: np.ndarray, k: int, blocks: int) -> np.ndarray:
    """How many scores of each row reach the bound; all blocks have the same, and at least k do."""
    bounds = torch.zeros(scores.shape[0], blocks)
    probe.bound(torch.from_numpy(scores), bounds, k)
    bound = bounds.numpy()
    np.testing.assert_array_equal(bound, np.broadcast_to(bound[:, :1], bound.shape))
    with np.errstate(invalid="ignore"):  # signalling NaN
        found = ((scores >= bound[:, :1]) | np.isnan(bound[:, :1])).sum(1)
    assert (found >= k).all()
    return found


@pytest.mark.parametrize("what", ROWS)
@pytest.mark.parametrize(("k", "columns", "blocks"), SIZES)
def test_the_best_reach_the_bound(probe: tvm_ffi.Module, what: str, k: int, columns: int, blocks: int) -> None:
    rng = np.random.default_rng(columns + k)
    scores = ROWS[what](rng, columns).astype(np.float32)[None]
    reached(probe, scores, k, blocks)


@pytest.mark.parametrize(("k", "columns", "blocks"), SIZES)
def test_they_do_where_a_group_has_only_one(probe: tvm_ffi.Module, k: int, columns: int, blocks: int) -> None:
    """As many scores as groups reach a key: a bound one group too high leaves one of the best out."""
    at = np.arange(columns // blocks // 512 * 512 * blocks)
    share = columns // blocks // 512 * 512
    rng = np.random.default_rng(k + 1)
    one = (at % share % 512 < 128) & (at % 4 == 0)  # a thread's group is four vectors, 128 scores apart
    scores = np.where(one, rng.standard_normal((5, len(at)), np.float32), np.float32(-np.inf))
    assert reached(probe, scores, k, blocks).max() <= 1.5 * k + 8 * blocks


@pytest.mark.parametrize(("k", "columns", "blocks"), SIZES)
@pytest.mark.parametrize("what", ["random", "NaN among them", "huge range"])
def test_few_others_do(probe: tvm_ffi.Module, what: str, k: int, columns: int, blocks: int) -> None:
    rng = np.random.default_rng(k)
    scores = np.stack([ROWS[what](rng, columns) for _ in range(3)]).astype(np.float32)
    assert reached(probe, scores, k, blocks).max() <= 2 * k + 8 * blocks


def test_one_block_may_have_most_of_the_best(probe: tvm_ffi.Module) -> None:
    rng = np.random.default_rng(5)
    scores = rng.standard_normal((1, 262144), np.float32)
    scores[0, 3 * 16384 : 4 * 16384] += 2.0
    assert reached(probe, scores, 512, 16)[0] <= 1024

"""The CPU emulation of CUDA: collectives, barriers, indices, atomics, clusters, and errors for misuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsa_crosscheck.cuda_impl.build import load_emulated


@pytest.fixture(scope="module")
def probe() -> Any:
    return load_emulated([Path(__file__).parent / "probes" / "simt_probe.cu"])


def test_each_collective(probe: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-(10**6), 10**6, 32).astype(np.int32)
    out = np.zeros((18, 32), np.int32)
    probe.collectives(x, out)
    lane = np.arange(32)
    ballot = np.uint32(sum(1 << int(i) for i in lane if x[i] > 0)).astype(np.int32)
    expected = [np.full(32, x[7]), x[(lane + 3) % 32], *(x[lane ^ s] for s in (1, 2, 4, 8, 16))]
    expected += [np.where(lane >= 3, x[lane - 3], x), np.where(lane < 27, x[(lane + 5) % 32], x)]
    expected += [np.full(32, v) for v in (ballot, 0, 1, 0, 1, x.sum(), x.min(), x.max())]
    expected += [x[lane ^ 1]]
    np.testing.assert_array_equal(out, np.stack(expected))


@pytest.mark.parametrize("threads", [32, 64, 1024])
def test_barriers_order_shared_memory(probe: Any, threads: int) -> None:
    x = np.random.default_rng(1).integers(-50, 50, (7, 3001)).astype(np.float32)
    out = np.full(7, np.nan, np.float32)
    probe.row_sums(x, out, threads)
    np.testing.assert_array_equal(out, x.sum(1, dtype=np.float64))


def test_thread_and_block_indices(probe: Any) -> None:
    out = np.full((12, 64, 6), -1, np.int32)
    probe.places(out)
    bz, by, bx, tz, ty, tx = (i.ravel() for i in np.indices((2, 2, 3, 2, 4, 8)))
    np.testing.assert_array_equal(out.reshape(-1, 6), np.stack([tx, ty, tz, bx, by, bz], axis=1))


def test_atomics(probe: Any) -> None:
    out, total = np.zeros(4, np.int32), np.zeros(1, np.float32)
    probe.counters(out, total)
    assert out.tolist() == [96, -5, 3 * 96 * 95 // 2, 1]
    assert total[0] == 0.5 * 3 * 96


def test_a_whole_warp_may_leave_early(probe: Any) -> None:
    out = np.zeros((2, 64), np.int32)
    probe.early_warp(out)
    odd = np.uint32(0xAAAAAAAA).astype(np.int32)
    expected = np.zeros((2, 64), np.int32)
    expected[0, 32:] = odd
    expected[1, :32] = odd
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (
            0,
            r"kernel misuse, block \(0, 0, 0\), thread \(5, 0, 0\): .* kernel end.*__syncwarp \(.*\.cu:\d+\)",
        ),
        (1, r"thread \(32, 0, 0\): divergent .* at __syncthreads .* of its block is at kernel end"),
        (2, r"thread \(35, 0, 0\): divergent .* at __syncwarp .* of its warp is at warp shuffle"),
        (3, r"thread \(32, 0, 0\): divergent .* at __syncthreads .* at __syncthreads"),
        (4, r"thread \(31, 0, 0\): divergent .* at warp shuffle .* of its warp is at kernel end"),
        (5, r"warp vote \(.*\) needs the mask 0xffffffff, got 65535"),
    ],
)
def test_divergent_collectives_are_errors(probe: Any, mode: int, message: str) -> None:
    anything = np.zeros(1, np.int32)
    with pytest.raises(RuntimeError, match=message):
        probe.misuse(anything, mode, 64, 0)
    probe.misuse(anything, 9, 64, 0)  # the next launch starts clean


@pytest.mark.parametrize(("cluster", "blocks"), [(1, 3), (2, 6), (8, 16), (16, 48)])
def test_blocks_of_a_cluster_reach_each_other(probe: Any, cluster: int, blocks: int) -> None:
    block = np.arange(blocks)
    for steps in (0, 1, 5):
        out = np.full(blocks, -1, np.int32)
        probe.pass_round(out, cluster, steps)
        np.testing.assert_array_equal(out, block // cluster * cluster + (block - steps) % cluster)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (0, r"block \(1, 0, 0\), thread \(0, 0, 0\): .* at kernel end, .* of its cluster is at cluster barrier"),
        (1, r"block \(0, 0, 0\), thread \(32, 0, 0\): .* at kernel end, .* of its block is at cluster barrier"),
        (2, r"__cluster_map_shared_rank needs a place in dynamic shared memory and the rank of a block"),
        (3, r"__cluster_map_shared_rank needs a place in dynamic shared memory and the rank of a block"),
    ],
)
def test_misuse_of_clusters_is_an_error(probe: Any, mode: int, message: str) -> None:
    anything = np.zeros(1, np.int32)
    with pytest.raises(RuntimeError, match=message):
        probe.cluster_misuse(anything, mode)
    probe.cluster_misuse(anything, 9)  # the next launch starts clean


@pytest.mark.parametrize(("blocks", "cluster"), [(4, 0), (4, 3), (34, 17)])
def test_whole_clusters_only(probe: Any, blocks: int, cluster: int) -> None:
    with pytest.raises(RuntimeError, match=f"of at most 16 blocks, got {blocks} .* clusters of {cluster}"):
        probe.pass_round(np.zeros(blocks, np.int32), cluster, 1)


def test_launch_limits(probe: Any) -> None:
    anything = np.zeros(1, np.int32)
    for threads in (0, 48, 1056):
        with pytest.raises(RuntimeError, match=f"kernel misuse needs a block of whole warps.*got {threads}"):
            probe.misuse(anything, 9, threads, 0)
    probe.misuse(anything, 9, 64, 227 * 1024)
    with pytest.raises(RuntimeError, match=r"misuse needs at most 232448 bytes of dynamic shared memory, got 232449"):
        probe.misuse(anything, 9, 64, 227 * 1024 + 1)


def test_stacks_of_threads_are_separate(probe: Any) -> None:
    out = np.zeros(64, np.int32)
    probe.deep(out, 60)
    np.testing.assert_array_equal(out, np.arange(64) * 61)


def test_dynamic_shared_memory_starts_as_nan_in_every_block(probe: Any) -> None:
    out = np.zeros(32, np.int32)
    probe.poison(out)
    assert (out == -1).all()


def test_bit_intrinsics(probe: Any) -> None:
    x = np.concatenate([[0, -1, 1, -(2**31)], np.random.default_rng(2).integers(-(2**31), 2**31, 28)]).astype(np.int32)
    out = np.zeros((32, 4), np.int32)
    probe.bits(x, out)
    for value, got in zip(x.view(np.uint32).tolist(), out.view(np.uint32).tolist(), strict=True):
        digits = f"{value:032b}"
        first = len(digits) - len(digits.rstrip("0")) + 1 if value else 0
        assert got == [digits.count("1"), digits.find("1") if value else 32, first, int(digits[::-1], 2)]


def test_frsqrt_rn_rounds_once(probe: Any) -> None:
    # Every float32 in [1, 4), which with powers of four are all there are. A long double quotient
    # decides each: the closest of them, 2.9077690, lies 2^-52.5 from a midpoint of two floats.
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is no wider than double here")
    for start in range(0x3F800000, 0x40800000, 1 << 22):
        x = np.arange(start, start + (1 << 22), dtype=np.uint32).view(np.float32)
        out = np.empty_like(x)
        probe.rsqrt(x, out)
        wide = x.astype(np.longdouble)
        np.testing.assert_array_equal(out, (1 / np.sqrt(wide)).astype(np.float32))


def test_frsqrt_rn_at_the_ends(probe: Any) -> None:
    tiny = np.float32(2.0**-149)
    x = np.array([0.0, -0.0, np.inf, -1.0, np.nan, tiny, 2.0**126, 4 * 2.90776896], np.float32)
    out = np.empty_like(x)
    probe.rsqrt(x, out)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = (1 / np.sqrt(x.astype(np.longdouble))).astype(np.float32)
    np.testing.assert_array_equal(out, expected)

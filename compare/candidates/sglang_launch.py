"""Launches of SGLang's kernels with everything prepared: what a candidate runs, and what is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.sglang_build import CLUSTER_PROBE, CLUSTERS, load, store_unit, topk_unit
from dsa_crosscheck.compare.candidates.sglang_plans import RATIO

if TYPE_CHECKING:
    import tvm_ffi

STORE_ENTRIES = {"fp8-e4m3fn": "forward", "fp4-e2m1": "forward_fp4"}
"""Entry point of the store by key format."""

PAGE = 64
MOST_KEYS = 2048
"""Largest k of top-k v2."""


@dataclass(frozen=True)
class StoreArguments:
    """What every store takes: ``rows`` float32 [n, 128] and where they go, see ``Candidate.store_keys``."""

    rows: torch.Tensor
    norm_weight: torch.Tensor
    norm_eps: float
    rope_table: torch.Tensor
    slots: torch.Tensor
    cache: torch.Tensor


def store_launch(
    given: StoreArguments, plan: torch.Tensor, *, key_format: str, page_size: int, decode: bool
) -> Callable[[], object]:
    """One fused store of ``given`` by an extend or a decode plan, uint8 [n, 16].

    ``Unsupported`` for pages that are no power of two of tokens, or as ``load``.
    """
    if page_size < 1 or page_size & (page_size - 1):
        raise Unsupported(f"SGLang stores into pages of a power of two of tokens, got page_size={page_size}")
    kernel = load(store_unit(page_size), torch.cuda.get_device_capability(given.cache.device))
    entry = kernel[STORE_ENTRIES[key_format]]
    arguments = (given.rows, plan, given.norm_weight, given.norm_eps, given.rope_table, given.slots, given.cache)
    settle(given.cache.device)
    return lambda: entry(*arguments, decode, RATIO)


def select_launch(scores: torch.Tensor, lengths: torch.Tensor, selected: torch.Tensor) -> Callable[[], object]:
    """One top-k v2 of float32 [rows, n] into ``selected`` int32 [rows, k], planned for these lengths.

    It runs as in serving, through a page table (here that of a cache in order, so that slots are logical
    indices) and on clusters of blocks where the package would. ``n`` is a multiple of 4. ``Unsupported``
    for k outside [1, ``MOST_KEYS``].
    """
    rows, width = scores.shape
    if not 1 <= selected.shape[1] <= MOST_KEYS:
        raise Unsupported(f"SGLang selects 1 to {MOST_KEYS} keys, got k={selected.shape[1]}")
    kernel = topk_module(torch.cuda.get_device_capability(scores.device))
    in_order = torch.arange(-(-width // PAGE), dtype=torch.int32, device=scores.device)
    table = in_order.expand(rows, -1)
    metadata = lengths.new_zeros(rows + 1, 2)
    kernel.plan(lengths, metadata, -1)
    transform = kernel.transform_paged
    settle(scores.device)
    return lambda: transform(scores, lengths, table, selected, PAGE, metadata, None)


def topk_module(capability: tuple[int, int]) -> tvm_ffi.Module:
    """Top-k v2, compiled for the clusters that the current device can run at once, as the package does."""
    probe = load(CLUSTER_PROBE, capability).get_max_active_clusters
    return load(topk_unit(tuple(int(probe(blocks, occupancy)) for blocks, occupancy in CLUSTERS)), capability)


def settle(device: torch.device) -> None:
    """Wait for what was launched so far.

    The kernels are launched to overlap with the one before and read plans and lengths before they wait
    for it; in serving, other kernels lie in between.
    """
    torch.cuda.current_stream(device).synchronize()

"""The project's kernels, launched as a serving loop would; on CPU tensors, their emulation."""

from __future__ import annotations

from collections.abc import Callable

from dsa_crosscheck.compare.device.batches import ScoreBatch, SelectBatch, StoreBatch
from dsa_crosscheck.compare.device.sizes import PAGE
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score import launch_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import plan_scores
from dsa_crosscheck.cuda_impl.ops.variants import scale_arguments, variant_for

STAGES = {"score": ("fp8", "bf16", "fp4"), "store": ("fp8", "bf16", "fp4"), "select": ("fp32",)}


def score(batch: ScoreBatch) -> Callable[[], object]:
    """Paged scores by the best unit there is; two rows a request share its keys."""
    return score_by(batch, None)


def score_by(batch: ScoreBatch, unit: str | None) -> Callable[[], object]:
    """The launch of paged scores by ``unit``, as in ``paged_scores``; its plan is made here, once for a decode step."""
    plan = plan_scores(
        batch.block_table,
        batch.request_of_row,
        batch.lengths,
        codec=batch.conventions.key,
        heads=batch.weights.shape[1],
        page_size=PAGE,
        pages=batch.cache.shape[0],
        unit=unit,
    )
    tensors = (batch.codes, batch.weights, batch.cache)
    scores = batch.scores
    return lambda: launch_scores(*tensors, plan, scores)


def store(batch: StoreBatch) -> Callable[[], object]:
    """Norm, RoPE, Hadamard, encode and write in one launch."""
    kernel = kernels_for(batch.cache.device).store_decode
    export = variant_for("store", "key", batch.codec).export
    floor, reciprocal = scale_arguments(batch.codec)
    tensors = (batch.rows, batch.norm_weight, batch.rope_table, batch.seq_lens, batch.slots, batch.cache)
    plan = (export, floor, reciprocal, batch.compress_ratio, batch.page_size, batch.norm_eps)
    return lambda: kernel(*tensors, *plan)


def select(batch: SelectBatch) -> Callable[[], object]:
    """Exact top-k in index order."""
    kernels = kernels_for(batch.scores.device)
    blocks = kernels.topk_blocks(batch.scores)
    words = kernels.topk_workspace(*batch.scores.shape, batch.k, blocks)
    tensors = (batch.scores, batch.lengths, batch.lengths.new_empty(words), batch.selected)
    return lambda: kernels.topk(*tensors, blocks)

"""Scoring of query rows against a paged key cache."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_tensors
from dsa_crosscheck.cuda_impl.ops.placement import check_positive
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score_plan import ALIGNED, ALIGNMENT, UNITS, ScorePlan, plan_for, score_kernel
from dsa_crosscheck.cuda_impl.ops.variants import HEAD_DIM
from dsa_crosscheck.reference.codec_spec import Codec

MMA_HEADS = 160
"""Most heads that ``mma`` takes."""


def paged_scores(
    codes: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    request_of_row: torch.Tensor,
    lengths: torch.Tensor,
    *,
    codec: Codec,
    page_size: int,
    unit: str | None = None,
) -> torch.Tensor:
    """Float32 scores [rows, max(lengths)]: key scale * sum over heads of weight * relu(query . key).

    - ``codes`` uint8 [rows, heads, bytes]: 128 e4m3fn codes, 128 bfloat16 values, or 64 bytes of e2m1 pairs
      (even element low) and 4 UE8M0 scales. An fp8 query's scale is in its weight.
    - ``weights`` float32 [rows, heads].
    - ``cache`` uint8 [pages, page_bytes]: the values of all tokens of a page, then their scales
      (float32 for fp8, 4 UE8M0 bytes for fp4), keys as ``codec`` says.
    - ``block_table`` int32 [requests, max_pages]: physical page of each logical page; entries past a
      request's longest row are not read, and may be -1 or anything else.
    - ``request_of_row``, ``lengths`` int32 [rows]; ``page_size`` tokens a page, any number >= 1.
    - ``unit``: a name of ``UNITS``; None is the best that the device and the sizes allow.

    Columns at or past a row's length are -inf. Length 0, no rows and one request shared by many rows
    are legal. The fp8 scale multiplies after the head sum, fp4 scales are inside the product, and
    NaN propagates through the relu. Nothing with a head axis is written to memory.

    The matrix units follow a plan, which is made here in a launch of its own. ``plan_scores`` makes one for all layers
    of a decode step, and ``planned_scores`` takes it.

    The same call gives the same bits on every run. ``fma`` adds in float32 in one fixed order, the same on every
    device, and takes everything. The matrix units add in orders of their own, so the bits that a GPU gives depend
    on which unit scores, and that on the page size, the number of heads and where the tensors start:

    - ``mma`` takes up to 160 heads, and keys that start at multiples of 16 bytes: an aligned ``cache``, with pages
      of a multiple of 4 tokens unless keys are bf16. Products are exact. Its sums were measured on an H200,
      within float32's own bound; `dsa-crosscheck device accumulator --candidate cuda-mma` measures another GPU's.
    - ``wgmma`` takes up to 64 heads (bf16 keys: just 64), pages of a multiple of 64 tokens, and ``cache``, ``codes``
      and a row's codes aligned to 16 bytes. Its sums were measured on an H200, within float32's own bound.

    Raises ``ValueError`` naming the argument: another dtype, shape or device, not contiguous, no heads,
    ``codes`` or ``cache`` at an address that 4 does not divide, a codec without a kernel, a page size
    below 1, a negative length or one that ``max_pages`` cannot hold, a request out of range, a page
    outside the cache below a row's length, or a unit that is none, or that the device or the sizes do not allow
    (where there is anything to score).
    """
    check_positive("paged_scores", "page_size", page_size)
    sizes = check_tensors(
        "paged_scores",
        **_expected("paged_scores", codes, weights, cache, codec, page_size),
        block_table=(block_table, torch.int32, ("requests", "max_pages")),
        request_of_row=(request_of_row, torch.int32, ("rows",)),
        lengths=(lengths, torch.int32, ("rows",)),
    )
    if sizes["heads"] == 0:
        raise ValueError(f"`paged_scores(codes=...)` should have at least one head, got shape {list(codes.shape)}")
    _check_starts("paged_scores", codes, cache)
    plan = plan_for(
        "paged_scores",
        block_table,
        request_of_row,
        lengths,
        codec=codec,
        heads=sizes["heads"],
        page_size=page_size,
        pages=sizes["pages"],
        unit=unit,
        codes_at=codes.data_ptr(),
        cache_at=cache.data_ptr(),
    )
    scores = weights.new_empty(sizes["rows"], plan.width)
    launch_scores(codes, weights, cache, plan, scores)
    return scores


def planned_scores(codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, plan: ScorePlan) -> torch.Tensor:
    """``paged_scores`` by the unit and of the rows of ``plan``: one launch that asks nothing of the host.

    ``codes``, ``weights``, ``cache`` as in ``paged_scores``, on the plan's device, with the rows, heads and pages that
    it was made for. It may be captured in a CUDA graph, whose replays score the plan's lengths and pages.

    Raises ``ValueError`` naming the argument: another dtype, shape or device, not contiguous, other rows, heads or
    pages than the plan's, or an address that 4, or 16 where the plan's unit needs it, does not divide.
    """
    function = "planned_scores"
    expected = _expected(function, codes, weights, cache, plan.codec, plan.page_size)
    sizes = check_tensors(function, plan=(plan.lengths, torch.int32, ("rows",)), **expected)
    for name in ("heads", "pages"):
        if sizes[name] != getattr(plan, name):
            raise ValueError(f"`{function}(plan=...)` should be for {sizes[name]} {name}, got {getattr(plan, name)}")
    _check_starts(function, codes, cache)
    for name in ALIGNED[plan.unit]:
        at = {"codes": codes, "cache": cache}[name].data_ptr()
        if at % ALIGNMENT:
            raise ValueError(
                f"`{function}({name}=...)` should start at a multiple of {ALIGNMENT} bytes for unit {plan.unit!r}, "
                f"got {at:#x}"
            )
    scores = weights.new_empty(sizes["rows"], plan.width)
    launch_scores(codes, weights, cache, plan, scores)
    return scores


def launch_scores(
    codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, plan: ScorePlan, scores: torch.Tensor
) -> None:
    """Writes the scores of tensors that have been checked to ``scores`` [rows, plan.width]."""
    if not scores.numel():
        return
    kernel = getattr(kernels_for(scores.device), f"paged_scores_{score_kernel('paged_scores', plan.codec)[0]}")
    tensors = (codes, weights, cache, plan.block_table, plan.request_of_row, plan.lengths, plan.shares, scores)
    kernel(*tensors, plan.page_size, plan.rows_of_group, UNITS[plan.unit])


def _expected(
    function: str, codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, codec: Codec, page_size: int
) -> dict[str, tuple[torch.Tensor, torch.dtype, tuple[int | str, ...]]]:
    """What ``check_tensors`` is to find of the queries and keys."""
    return {
        "codes": (codes, torch.uint8, ("rows", "heads", score_kernel(function, codec)[1])),
        "weights": (weights, torch.float32, ("rows", "heads")),
        "cache": (cache, torch.uint8, ("pages", page_size * codec.record_bytes(HEAD_DIM))),
    }


def _check_starts(function: str, codes: torch.Tensor, cache: torch.Tensor) -> None:
    for name, tensor in (("codes", codes), ("cache", cache)):
        if tensor.data_ptr() % 4:
            raise ValueError(
                f"`{function}({name}=...)` should start at a multiple of 4 bytes, got {tensor.data_ptr():#x}"
            )

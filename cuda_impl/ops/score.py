"""Scoring of query rows against a paged key cache."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.cuda_impl.ops.placement import check_positive
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.variants import HEAD_DIM
from dsa_crosscheck.reference.codec_spec import Codec

SCORE_KERNELS: dict[tuple[str, str | None, str | None], tuple[str, int]] = {
    ("fp8-e4m3fn", "fp32", None): ("paged_scores_fp8", 128),
    ("fp8-e4m3fn", "power-of-two", None): ("paged_scores_fp8", 128),
    ("bf16", None, None): ("paged_scores_bf16", 256),
    ("fp4-e2m1", "power-of-two", "low-even"): ("paged_scores_fp4", 68),
}
"""(key format, scale, nibbles) -> (exported kernel, bytes of a query code)."""

UNITS: dict[str | None, int] = {None: 0, "wgmma": 1, "mma": 2, "fma": 3}
"""What computes a score, by its number in the exported kernels.

``wgmma``: the matrix unit of a Hopper GPU by the instructions that it alone has; ``mma``: the matrix unit of any
GPU; ``fma``: plain float32. None is the first of them that the device and the sizes allow.
"""

MMA_HEADS = 160
"""Most heads that ``mma`` takes."""

MMA_ALIGNMENT = 16
"""What divides the bytes of a page, and the address of the first, where ``mma`` reads keys."""


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
    kernel, query_bytes = score_kernel(codec)
    check_positive("paged_scores", "page_size", page_size)
    if unit not in UNITS:
        raise ValueError(f"`paged_scores(unit=...)` should be one of {tuple(UNITS)}, got {unit!r}")
    sizes = check_tensors(
        "paged_scores",
        codes=(codes, torch.uint8, ("rows", "heads", query_bytes)),
        weights=(weights, torch.float32, ("rows", "heads")),
        cache=(cache, torch.uint8, ("pages", page_size * codec.record_bytes(HEAD_DIM))),
        block_table=(block_table, torch.int32, ("requests", "max_pages")),
        request_of_row=(request_of_row, torch.int32, ("rows",)),
        lengths=(lengths, torch.int32, ("rows",)),
    )
    if sizes["heads"] == 0:
        raise ValueError(f"`paged_scores(codes=...)` should have at least one head, got shape {list(codes.shape)}")
    for name, tensor in (("codes", codes), ("cache", cache)):
        if tensor.data_ptr() % 4:
            raise ValueError(
                f"`paged_scores({name}=...)` should start at a multiple of 4 bytes, got {tensor.data_ptr():#x}"
            )
    check_range("paged_scores", "request_of_row", request_of_row, 0, sizes["requests"])
    check_range("paged_scores", "lengths", lengths, 0, sizes["max_pages"] * page_size + 1)
    _check_pages(block_table, request_of_row, lengths, page_size, sizes["pages"])
    width = int(lengths.max()) if sizes["rows"] else 0
    scores = weights.new_empty(sizes["rows"], width)
    if width:
        tensors = (codes, weights, cache, block_table, request_of_row, lengths, scores)
        pairs = paired(request_of_row)
        getattr(kernels_for(scores.device), kernel)(*tensors, page_size, pairs, UNITS[unit])
    return scores


def score_kernel(codec: Codec) -> tuple[str, int]:
    """Exported kernel and bytes of a query code for keys of ``codec``; ``ValueError`` without one."""
    wanted = (codec.format, codec.scale, codec.nibbles)
    if wanted not in SCORE_KERNELS:
        raise ValueError(
            "`paged_scores(codec=...)` should have (format, scale, nibbles) one of "
            f"{tuple(SCORE_KERNELS)}, got {wanted}"
        )
    return SCORE_KERNELS[wanted]


def _check_pages(
    block_table: torch.Tensor, request_of_row: torch.Tensor, lengths: torch.Tensor, page_size: int, pages: int
) -> None:
    """Page ids are checked where some row of the request reads them, and nowhere else."""
    longest = lengths.new_zeros(block_table.shape[0])
    longest.scatter_reduce_(0, request_of_row.long(), lengths, "amax")
    logical = torch.arange(block_table.shape[1], device=block_table.device)
    bad = (logical * page_size < longest.unsqueeze(1)) & ((block_table < 0) | (block_table >= pages))
    if bool(bad.any()):
        request, page = (int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"`paged_scores(block_table=...)` should name pages in [0, {pages}) below a row's length, "
            f"got {int(block_table[request, page])} for page {page} of request {request}"
        )


def paired(request_of_row: torch.Tensor) -> bool:
    """Whether rows 2i and 2i + 1 of ``request_of_row`` [rows] always belong to one request: two decode steps at once.

    The exported scorers take it, so that the keys of a request are read once for two rows.
    """
    pairs = request_of_row.view(-1, 2) if request_of_row.shape[0] % 2 == 0 else None
    return pairs is not None and bool((pairs[:, 0] == pairs[:, 1]).all())

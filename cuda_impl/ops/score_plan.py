"""Which block scores what: made once for all layers of a decode step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.cuda_impl.ops.placement import check_positive
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.reference.codec_spec import Codec

SCORE_KERNELS: dict[tuple[str, str | None, str | None], tuple[str, int]] = {
    ("fp8-e4m3fn", "fp32", None): ("fp8", 128),
    ("fp8-e4m3fn", "power-of-two", None): ("fp8", 128),
    ("bf16", None, None): ("bf16", 256),
    ("fp4-e2m1", "power-of-two", "low-even"): ("fp4", 68),
}
"""(key format, scale, nibbles) -> (end of the exported kernels' names, bytes of a query code)."""

UNITS: dict[str | None, int] = {None: 0, "wgmma": 1, "mma": 2, "fma": 3}
"""What computes a score, by its number in the exported kernels.

``wgmma``: the matrix unit of a Hopper GPU by the instructions that it alone has; ``mma``: the matrix unit of any
GPU; ``fma``: plain float32. None is the first of them that the device and the sizes allow.
"""

ALIGNMENT = 16
"""Of what a matrix unit reads: it divides the bytes of a page, and addresses as ``ALIGNED`` says."""

ALIGNED: dict[str, tuple[str, ...]] = {"wgmma": ("codes", "cache"), "mma": ("cache",), "fma": ()}
"""Whose address ``ALIGNMENT`` has to divide, by unit."""

SHARE_WORDS = 40
"""int32 words of a block's share of a plan."""


@dataclass(frozen=True, eq=False)
class ScorePlan:
    """How rows are scored, by what: made by ``plan_scores``, for ``planned_scores``.

    - ``shares`` int32 [blocks, 40]: a block's first tile, how many it has, and where the first keys lie; no
      blocks where ``unit`` needs no plan.
    - ``rows_of_group``: neighbouring rows whose keys are read once, 1 or 2; ``width``: columns of the scores.
    - ``block_table``, ``request_of_row``, ``lengths``: copies of what it was made of.
    """

    codec: Codec
    heads: int
    page_size: int
    pages: int
    unit: str
    rows_of_group: int
    width: int
    shares: torch.Tensor
    block_table: torch.Tensor
    request_of_row: torch.Tensor
    lengths: torch.Tensor


def plan_scores(
    block_table: torch.Tensor,
    request_of_row: torch.Tensor,
    lengths: torch.Tensor,
    *,
    codec: Codec,
    heads: int,
    page_size: int,
    pages: int,
    unit: str | None = None,
    codes_at: int = 0,
    cache_at: int = 0,
) -> ScorePlan:
    """The plan for rows of ``heads`` heads and caches of ``pages`` pages of ``page_size`` tokens in ``codec``.

    Tensors, ``codec`` and ``unit`` are those of ``paged_scores``. The plan has copies of them, and stays the plan of
    these lengths and pages whatever is written to the tensors later. ``codes_at`` and ``cache_at``: the addresses of
    the codes and caches that will be scored, or what they leave over 16; matrix units do not take every one.

    Raises ``ValueError`` naming the argument as ``paged_scores`` does, and where ``heads`` or ``page_size`` is no
    positive integer or ``pages`` is negative.
    """
    plan = plan_for(
        "plan_scores",
        block_table,
        request_of_row,
        lengths,
        codec=codec,
        heads=heads,
        page_size=page_size,
        pages=pages,
        unit=unit,
        codes_at=codes_at,
        cache_at=cache_at,
    )
    return replace(
        plan, block_table=block_table.clone(), request_of_row=request_of_row.clone(), lengths=lengths.clone()
    )


def plan_for(
    function: str,
    block_table: torch.Tensor,
    request_of_row: torch.Tensor,
    lengths: torch.Tensor,
    *,
    codec: Codec,
    heads: int,
    page_size: int,
    pages: int,
    unit: str | None,
    codes_at: int,
    cache_at: int,
) -> ScorePlan:
    """``plan_scores`` in the name of ``function``, for its errors, and without copies."""
    kernel, _ = score_kernel(function, codec)
    check_positive(function, "heads", heads)
    check_positive(function, "page_size", page_size)
    if isinstance(pages, bool) or not isinstance(pages, int) or pages < 0:
        raise ValueError(f"`{function}(pages=...)` should be an integer of at least 0, got {pages!r}")
    if unit not in UNITS:
        raise ValueError(f"`{function}(unit=...)` should be one of {tuple(UNITS)}, got {unit!r}")
    sizes = check_tensors(
        function,
        block_table=(block_table, torch.int32, ("requests", "max_pages")),
        request_of_row=(request_of_row, torch.int32, ("rows",)),
        lengths=(lengths, torch.int32, ("rows",)),
    )
    check_range(function, "request_of_row", request_of_row, 0, sizes["requests"])
    check_range(function, "lengths", lengths, 0, sizes["max_pages"] * page_size + 1)
    _check_pages(function, block_table, request_of_row, lengths, page_size, pages)
    width = int(lengths.max()) if sizes["rows"] else 0
    number, blocks, rows_of_group = UNITS["fma"], 0, 1
    if width:
        kernels = kernels_for(lengths.device)
        layout = getattr(kernels, f"score_layout_{kernel}")
        starts = (codes_at % ALIGNMENT, cache_at % ALIGNMENT)
        number, blocks, rows_of_group = layout(
            lengths, heads, page_size, width, *starts, paired(request_of_row), UNITS[unit]
        )
    if number == UNITS[None]:
        raise ValueError(f"`{function}(unit=...)` should be one that the device and the sizes allow, got {unit!r}")
    shares = lengths.new_empty(blocks, SHARE_WORDS)
    if blocks:
        kernels.plan_scores(block_table, request_of_row, lengths, shares, page_size, width, rows_of_group)
    return ScorePlan(
        codec=codec,
        heads=heads,
        page_size=page_size,
        pages=pages,
        unit=next(name for name, its in UNITS.items() if name is not None and its == number),
        rows_of_group=rows_of_group,
        width=width,
        shares=shares,
        block_table=block_table,
        request_of_row=request_of_row,
        lengths=lengths,
    )


def score_kernel(function: str, codec: Codec) -> tuple[str, int]:
    """End of the exported kernels' names and bytes of a query code for keys of ``codec``; ``ValueError`` without."""
    wanted = (codec.format, codec.scale, codec.nibbles)
    if wanted not in SCORE_KERNELS:
        raise ValueError(
            f"`{function}(codec=...)` should have (format, scale, nibbles) one of {tuple(SCORE_KERNELS)}, got {wanted}"
        )
    return SCORE_KERNELS[wanted]


def paired(request_of_row: torch.Tensor) -> bool:
    """Whether rows 2i and 2i + 1 of ``request_of_row`` [rows] always belong to one request: two decode steps at once.

    The matrix units read the keys of a request once for two such rows.
    """
    pairs = request_of_row.view(-1, 2) if request_of_row.shape[0] % 2 == 0 else None
    return pairs is not None and bool((pairs[:, 0] == pairs[:, 1]).all())


def _check_pages(
    function: str,
    block_table: torch.Tensor,
    request_of_row: torch.Tensor,
    lengths: torch.Tensor,
    page_size: int,
    pages: int,
) -> None:
    """Page ids are checked where some row of the request reads them, and nowhere else."""
    longest = lengths.new_zeros(block_table.shape[0])
    longest.scatter_reduce_(0, request_of_row.long(), lengths, "amax")
    logical = torch.arange(block_table.shape[1], device=block_table.device)
    bad = (logical * page_size < longest.unsqueeze(1)) & ((block_table < 0) | (block_table >= pages))
    if bool(bad.any()):
        request, page = (int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"`{function}(block_table=...)` should name pages in [0, {pages}) below a row's length, "
            f"got {int(block_table[request, page])} for page {page} of request {request}"
        )

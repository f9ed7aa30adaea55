"""The stages in a row, behind the same calls that the kernels offer."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.unfused import query as queries
from dsa_crosscheck.cuda_impl.unfused.cache import gather_keys, page_layout, split_record, write_keys
from dsa_crosscheck.cuda_impl.unfused.hadamard import hadamard
from dsa_crosscheck.cuda_impl.unfused.lanes import to_stored_order
from dsa_crosscheck.cuda_impl.unfused.norm import normalise
from dsa_crosscheck.cuda_impl.unfused.quantise import quantise
from dsa_crosscheck.cuda_impl.unfused.rope import rotate
from dsa_crosscheck.cuda_impl.unfused.rounding import at_point
from dsa_crosscheck.cuda_impl.unfused.score import score_dense
from dsa_crosscheck.cuda_impl.unfused.select import select_rows
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry


def store_keys(
    pooled: torch.Tensor,
    norm_weight: torch.Tensor,
    rope_table: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    *,
    conventions: Conventions,
    geometry: Geometry,
) -> None:
    """Norm, RoPE, Hadamard, quantise and store ``pooled`` float32 [n, head_dim] in ``cache``, in place.

    ``norm_weight`` [head_dim], or [2, head_dim] (weight, bias) under LayerNorm. ``positions`` int64
    [n]: the raw position at which each key is rotated, as ``rope_position`` says. ``slots`` int64 [n],
    negative = not stored. ``cache`` uint8 [pages, page_bytes]. Raises ``ValueError`` from the stages.
    """
    keys = quantise(key_vectors(pooled, norm_weight, rope_table, positions, conventions), conventions.key)
    layout = page_layout(conventions.key, geometry, conventions.page_order)
    write_keys(cache, keys, slots, conventions.key, layout)


def key_vectors(
    pooled: torch.Tensor,
    norm_weight: torch.Tensor,
    rope_table: torch.Tensor,
    positions: torch.Tensor,
    conventions: Conventions,
) -> torch.Tensor:
    """What is quantised of ``pooled``, in stored order: float32 [n, head_dim]; arguments as in ``store_keys``."""
    c = conventions
    x = at_point(pooled, "pooled", c.bf16_points)
    x = at_point(normalise(x, norm_weight, c.norm, c.norm_eps), "normed", c.bf16_points)
    x = at_point(rotate(x, rope_table, positions, c.rope_pairing, c.rope_dims), "key-roped", c.bf16_points)
    if c.hadamard_key:
        x = hadamard(x, str(c.hadamard_order), str(c.hadamard_scale))
    return to_stored_order(at_point(x, "key-rotated", c.bf16_points), c.lane_order_key)


def encode_query(
    query: torch.Tensor,
    gate: torch.Tensor,
    rope_table: torch.Tensor,
    positions: torch.Tensor,
    *,
    conventions: Conventions,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RoPE, Hadamard and quantise ``query`` float32 [rows, heads, head_dim] at raw ``positions`` [rows].

    Returns codes uint8 [rows, heads, bytes] and weights float32 [rows, heads] made of ``gate``.
    """
    c = conventions
    x = at_point(rotate(query, rope_table, positions, c.rope_pairing, c.rope_dims), "query-roped", c.bf16_points)
    if c.hadamard_query:
        x = hadamard(x, str(c.hadamard_order), str(c.hadamard_scale))
    x = to_stored_order(at_point(x, "query-rotated", c.bf16_points), c.lane_order_query)
    return queries.encode(x, gate, c)


def score(
    codes: torch.Tensor,
    weights: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    request_of_row: torch.Tensor,
    lengths: torch.Tensor,
    *,
    conventions: Conventions,
    geometry: Geometry,
) -> torch.Tensor:
    """Float32 scores [rows, max(lengths)] of query codes against a paged cache; -inf past a length.

    ``block_table`` int32 [requests, max_pages] (-1 where no page is), ``request_of_row`` int32 [rows],
    ``lengths`` int32 [rows]. Raises ``ValueError`` for a length that its request's pages do not hold,
    or a page id outside the cache below a length.
    """
    width = int(lengths.max()) if lengths.numel() else 0
    if width == 0:
        return weights.new_empty(lengths.shape[0], 0)
    needed = -(-width // geometry.page_size)
    if needed > block_table.shape[1]:
        raise ValueError(
            f"`score(lengths=...)` should be at most {block_table.shape[1] * geometry.page_size}, the keys that "
            f"{block_table.shape[1]} pages hold, got {width}"
        )
    pages = block_table[request_of_row.long(), :needed].long()
    reachable = torch.arange(needed, device=pages.device) * geometry.page_size < lengths.unsqueeze(1)
    outside = reachable & ((pages < 0) | (pages >= cache.shape[0]))
    if bool(outside.any()):
        row, page = (int(i) for i in outside.nonzero()[0])
        raise ValueError(
            f"`score(block_table=...)` should name pages in [0, {cache.shape[0]}) below a row's length, "
            f"got {int(pages[row, page])} as page {page} of row {row}"
        )
    layout = page_layout(conventions.key, geometry, conventions.page_order)
    keys = gather_keys(cache, pages.where(reachable, 0), conventions.key, layout)
    keys = keys._replace(values=keys.values[:, :width], scales=keys.scales[:, :width])
    query = split_record(codes, conventions.query, conventions.query.value_bytes(geometry.head_dim))
    return score_dense(query, weights, keys, lengths, conventions)


def select(scores: torch.Tensor, lengths: torch.Tensor, topk: int, *, conventions: Conventions) -> torch.Tensor:
    """Top-k indices int32 [rows, topk] of float32 ``scores`` [rows, n]; see ``select_rows``."""
    return select_rows(scores, lengths, topk, conventions)

"""The query path: RoPE at the raw position, Hadamard, encode, and the head weights."""

from __future__ import annotations

from collections.abc import Set

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.variants import HEAD_DIM, scale_arguments, variant_for
from dsa_crosscheck.reference.codec_spec import Codec

QUERY_POINTS = frozenset({"query-roped", "query-rotated"})


def encode_query(
    query: torch.Tensor,
    gate: torch.Tensor,
    rope_table: torch.Tensor,
    positions: torch.Tensor,
    *,
    codec: Codec,
    bf16_points: Set[str] = frozenset(),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and head weights of query rows.

    - ``query`` float32 [rows, heads, 128], ``gate`` float32 [rows, heads].
    - ``rope_table`` float32 [positions, 64]; ``positions`` int64 [rows]: raw token positions.
    - ``bf16_points``: stage outputs rounded to bfloat16 before going on, of ``query-roped`` and
      ``query-rotated``. SGLang's fp4 path has both; its queries arrive as bfloat16, so that rounding
      all elements after RoPE is the same as rounding the rotated ones.

    Returns codes uint8 [rows, heads, record] and weights float32 [rows, heads]. Records: fp8 128
    bytes; bf16 256 (little-endian); fp4 68 (64 of codes, even element low, then 4 UE8M0 bytes). The
    weight is gate * factor with factor = fl32(128^-1/2 * heads^-1/2), computed in double and rounded
    once; for fp8 that product is then multiplied by the query's scale, all in float32.

    No rows or no heads give empty results. NaN elements become the NaN code of fp8 and bf16, and 0
    in fp4. Raises ``ValueError`` naming the argument: wrong dtype, shape, layout or device, a codec
    without a kernel, a position outside the table, an unknown bf16 point.

    Source: SGLang deepseek_v4 ``main_norm_rope.cuh``.
    """
    variant = variant_for("encode_query", "query", codec)
    unknown = sorted(set(bf16_points) - QUERY_POINTS)
    if unknown:
        raise ValueError(f"`encode_query(bf16_points=...)` should hold only {sorted(QUERY_POINTS)}, got {unknown}")
    sizes = check_tensors(
        "encode_query",
        query=(query, torch.float32, ("rows", "heads", HEAD_DIM)),
        gate=(gate, torch.float32, ("rows", "heads")),
        rope_table=(rope_table, torch.float32, ("positions", 64)),
        positions=(positions, torch.int64, ("rows",)),
    )
    check_range("encode_query", "positions", positions, 0, sizes["positions"])
    rows, heads = sizes["rows"], sizes["heads"]
    folded = codec.format == "fp8-e4m3fn"
    record = codec.value_bytes(HEAD_DIM) if folded else codec.record_bytes(HEAD_DIM)
    codes = torch.empty((rows, heads, record), dtype=torch.uint8, device=query.device)
    weights = torch.empty((rows, heads), dtype=torch.float32, device=query.device)
    if codes.numel():
        kernels_for(query.device).encode_query(
            query,
            gate,
            rope_table,
            positions,
            codes,
            weights,
            variant.export,
            *scale_arguments(codec),
            HEAD_DIM**-0.5 * heads**-0.5,
            "query-roped" in bf16_points,
            "query-rotated" in bf16_points,
        )
    return codes, weights

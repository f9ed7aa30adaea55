"""Pooling of raw tokens into index keys."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_tensors
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

RATIO = 4
"""Raw tokens a key, the only ratio the kernel is built for."""


def pool(kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
    """Pools every four raw tokens and the four before them into one key, per channel.

    ``kv_score`` float32 [tokens, 4 * head_dim]: columns (overlap kv, own kv, overlap score, own
    score) of one request from position 0. ``position_bias`` float32 [4, 2 * head_dim]: overlap half,
    own half. Returns float32 [tokens // 4, head_dim]; tokens past the last whole group make no key,
    so fewer than four give none. The first group has no overlap part. The softmax subtracts the
    largest score and sums in token order, in float32 with the kernel's own exp. A NaN or +inf score,
    or a window of only -inf, gives NaN.

    Raises ``ValueError`` naming the argument of another dtype, shape or device, or not contiguous.
    Source: DeepSeek-V4 ``Compressor`` with overlap; SGLang deepseek_v4 c4_v2.
    """
    check_tensors("pool", position_bias=(position_bias, torch.float32, (RATIO, "2 * head_dim")))
    head_dim, odd = divmod(position_bias.shape[1], 2)
    if odd or head_dim == 0:
        raise ValueError(
            f"`pool(position_bias=...)` should have 2 * head_dim columns, got shape {list(position_bias.shape)}"
        )
    check_tensors(
        "pool",
        position_bias=(position_bias, torch.float32, (RATIO, 2 * head_dim)),
        kv_score=(kv_score, torch.float32, ("tokens", 4 * head_dim)),
    )
    pooled = kv_score.new_empty(kv_score.shape[0] // RATIO, head_dim)
    kernels_for(kv_score.device).pool(kv_score, position_bias, pooled)
    return pooled

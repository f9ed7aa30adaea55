"""Overlapping softmax pooling of raw tokens into index keys."""

from __future__ import annotations

import torch


def pool(kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
    """Pools every ``ratio`` raw tokens and the group before them into one key.

    ``kv_score`` float32 [tokens, 4 * head_dim]: columns (overlap kv, own kv, overlap score, own
    score) of one request from position 0. ``position_bias`` float32 [ratio, 2 * head_dim]: overlap
    half, own half. Returns float32 [tokens // ratio, head_dim]; tokens past the last whole group are
    unused. The first group has no overlap part. NaN scores give NaN.

    Source: DeepSeek-V4 ``Compressor`` with overlap; SGLang deepseek_v4 c4_v2.
    """
    ratio, width = position_bias.shape
    head_dim = width // 2
    groups = kv_score.shape[0] // ratio
    tokens = kv_score[: groups * ratio].view(groups, ratio, 4, head_dim)
    bias = position_bias.view(ratio, 2, head_dim)

    overlap_value = torch.zeros_like(tokens[:, :, 0])
    overlap_score = torch.full_like(overlap_value, -torch.inf)
    overlap_value[1:] = tokens[:-1, :, 0]
    overlap_score[1:] = tokens[:-1, :, 2] + bias[:, 0]

    value = torch.cat((overlap_value, tokens[:, :, 1]), dim=1)
    score = torch.cat((overlap_score, tokens[:, :, 3] + bias[:, 1]), dim=1)
    return (value * torch.softmax(score, dim=1)).sum(dim=1)

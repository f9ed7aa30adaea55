"""Rotary position embedding of a part of the head."""

from __future__ import annotations

import torch


def rotate(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, pairing: str, dims: str) -> torch.Tensor:
    """Rotates ``rope_dim`` of the last axis of ``x`` [n, ..., head_dim]; the rest passes through.

    ``table`` [positions, rope_dim] holds cos, sin of each pair, interleaved; ``positions`` int64 [n]
    picks a row of it for each leading index of ``x``. ``pairing``: pair i is elements (2i, 2i + 1)
    (``interleaved``) or (i, i + rope_dim / 2) (``half-split``). ``dims``: the rotated elements are
    the ``first`` or the ``last`` of the head.
    """
    rope_dim = table.shape[1]
    start = 0 if dims == "first" else x.shape[-1] - rope_dim
    rows = table[positions].view(-1, *(1,) * (x.ndim - 2), rope_dim // 2, 2)
    cos, sin = rows.unbind(-1)

    pair_axis = -1 if pairing == "interleaved" else -2
    shape = (rope_dim // 2, 2) if pairing == "interleaved" else (2, rope_dim // 2)
    a, b = x[..., start : start + rope_dim].unflatten(-1, shape).unbind(pair_axis)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=pair_axis).flatten(-2)
    return torch.cat((x[..., :start], turned, x[..., start + rope_dim :]), dim=-1)

"""Normalisation of the pooled key."""

from __future__ import annotations

import torch


def normalise(x: torch.Tensor, weight: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
    """RMSNorm (``rms``) or LayerNorm (``layer``) over the last axis, in float32.

    ``x`` [n, head_dim]. ``weight`` is [head_dim] for RMSNorm and [2, head_dim] (weight, bias) for
    LayerNorm, whose variance is the biased one. A zero row gives zeros (or the bias). Raises
    ``ValueError`` when the shape of ``weight`` does not belong to ``kind``.
    """
    head_dim = x.shape[-1]
    expected = {"rms": (head_dim,), "layer": (2, head_dim)}[kind]
    if tuple(weight.shape) != expected:
        raise ValueError(
            f"`normalise(weight=...)` should have shape {list(expected)} for norm={kind!r}, got {list(weight.shape)}"
        )
    if kind == "layer":
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps) * weight[0] + weight[1]
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight

"""Rounding of a float32 stage output to a narrower type and back."""

from __future__ import annotations

import torch


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Nearest bfloat16 (ties to even), as float32. NaN stays NaN; beyond the range gives infinity."""
    return x.to(torch.bfloat16).to(torch.float32)


def to_fp16(x: torch.Tensor) -> torch.Tensor:
    """Nearest float16 (ties to even), as float32; magnitudes of 65,520 and more become infinite."""
    return x.to(torch.float16).to(torch.float32)


def at_point(x: torch.Tensor, point: str, bf16_points: frozenset[str]) -> torch.Tensor:
    """``x``, rounded to bfloat16 if ``point`` is one of the stage outputs that are."""
    return to_bf16(x) if point in bf16_points else x

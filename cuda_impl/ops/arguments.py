"""Checks of tensor arguments, with errors that name the function and the argument."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Shape = tuple[int | str, ...]
"""Length of each axis; a name stands for any length, the same wherever the name recurs."""


def check_tensors(function: str, **expected: tuple[torch.Tensor, torch.dtype, Shape]) -> Mapping[str, int]:
    """Sizes by axis name of contiguous tensors on one device.

    ``expected`` maps an argument's name to (tensor, dtype, shape). Raises ``ValueError`` naming the
    argument, what was expected and what came.
    """
    sizes: dict[str, int] = {}
    device = None
    for name, (tensor, dtype, shape) in expected.items():
        wanted = f"a contiguous {dtype} tensor [{', '.join(map(str, shape))}]"
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"`{function}({name}=...)` should be {wanted}, got {type(tensor).__name__}")
        got = f"{dtype_and_shape(tensor)}{'' if tensor.is_contiguous() else ', not contiguous'}"
        if tensor.dtype != dtype or tensor.ndim != len(shape) or not tensor.is_contiguous():
            raise ValueError(f"`{function}({name}=...)` should be {wanted}, got {got}")
        device = device or tensor.device
        if tensor.device != device:
            raise ValueError(f"`{function}({name}=...)` should be on {device} like the rest, got {tensor.device}")
        for axis, length in zip(shape, tensor.shape, strict=True):
            needed = sizes.setdefault(axis, length) if isinstance(axis, str) else axis
            if length != needed:
                raise ValueError(f"`{function}({name}=...)` should be {wanted} with {axis} = {needed}, got {got}")
    return sizes


def check_range(function: str, name: str, tensor: torch.Tensor, low: int, high: int) -> None:
    """Raises ``ValueError`` unless every element of the integer ``tensor`` is in [low, high)."""
    outside = tensor < low
    if high <= torch.iinfo(tensor.dtype).max:  # a bound that the dtype can't hold would wrap
        outside = outside | (tensor >= high)
    if bool(outside.any()):
        at = tuple(int(i) for i in outside.nonzero()[0])
        raise ValueError(f"`{function}({name}=...)` should be in [{low}, {high}), got {int(tensor[at])} at {at}")


def dtype_and_shape(tensor: torch.Tensor) -> str:
    """Text such as ``torch.float32 [2, 64]``."""
    return f"{tensor.dtype} {list(tensor.shape)}"

"""Anyone's arrays as numpy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch


def as_numpy(argument: str, array: Any) -> np.ndarray:
    """A torch tensor, numpy or JAX array as a numpy array of the same shape.

    Half-width floats become float32; float8 types become their bytes. ``TypeError`` for anything else,
    with ``argument`` as `function(name=...)`.
    """
    if isinstance(array, torch.Tensor):
        tensor = array.detach().cpu()
        if tensor.dtype in (torch.bfloat16, torch.float16):
            return tensor.float().numpy()
        return (tensor.view(torch.uint8) if str(tensor.dtype).startswith("torch.float8") else tensor).numpy()
    if not isinstance(array, np.ndarray | jax.Array):
        raise TypeError(f"`{argument}` should be a torch tensor, numpy or JAX array, got {type(array).__name__}")
    values = np.asarray(array)
    if values.dtype == np.float16 or values.dtype.name == "bfloat16":
        return values.astype(np.float32)
    return values.view(np.uint8) if values.dtype.name.startswith("float8") else values

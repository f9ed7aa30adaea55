"""Walsh-Hadamard transform of the last axis."""

from __future__ import annotations

from functools import lru_cache

import torch


def hadamard(x: torch.Tensor, order: str, scale: str) -> torch.Tensor:
    """Transform of the last axis (a power of two) by add and subtract stages, in float32.

    ``order``: ``natural`` (Sylvester) or ``sequency`` (rows by number of sign changes). ``scale``:
    ``orthonormal`` multiplies once at the end by head_dim^-1/2 rounded to float32; ``none`` does not.
    """
    n = x.shape[-1]
    y = x
    stride = 1
    while stride < n:
        a, b = y.unflatten(-1, (n // (2 * stride), 2, stride)).unbind(-2)
        y = torch.stack((a + b, a - b), dim=-2).flatten(-3)
        stride *= 2
    if scale == "orthonormal":
        y = y * torch.tensor(n**-0.5, dtype=torch.float32)
    return y[..., _sequency_rows(n)] if order == "sequency" else y


@lru_cache
def _sequency_rows(n: int) -> torch.Tensor:
    """Natural-order row of each sequency: rows sorted by their sign changes, which are 0 .. n-1."""
    rows = torch.ones(1, 1)
    while rows.shape[0] < n:
        rows = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), rows)
    changes = (rows[:, 1:] != rows[:, :-1]).sum(dim=1)
    return torch.argsort(changes)

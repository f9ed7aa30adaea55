"""Inputs of top-k: rows of normal scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch

UNWRITTEN = -2


@dataclass(frozen=True)
class SelectShape:
    """The best ``k`` of ``keys`` scores, for each of ``rows``."""

    rows: int
    keys: int
    k: int

    def entry(self) -> dict[str, int]:
        """What a record says of the shape."""
        return {"rows": self.rows, "keys": self.keys, "k": self.k}


@dataclass
class SelectBatch:
    """``scores`` float32 [rows, keys], ``lengths`` int32 [rows] (all of them ``keys``), and the result.

    ``selected`` int32 [rows, k], which a library that allocates its own result may replace, in any order.
    """

    format: str
    shape: SelectShape
    scores: torch.Tensor
    lengths: torch.Tensor
    selected: torch.Tensor

    @property
    def k(self) -> int:
        """Keys to select a row."""
        return self.shape.k

    @property
    def bytes(self) -> int:
        """Each score read once, each index written once."""
        return 4 * (self.scores.numel() + self.shape.rows * (self.k + 1))

    @property
    def flops(self) -> int:
        """Selection only compares."""
        return 0

    @property
    def read_bytes(self) -> int:
        """Bytes of the scores."""
        return 4 * self.scores.numel()

    def clear(self) -> None:
        """``UNWRITTEN`` in place of every index."""
        self.selected.fill_(UNWRITTEN)


def select_batch(format_name: str, shape: SelectShape, seed: int, device: str) -> SelectBatch:
    """Independent normal scores."""
    generator = torch.Generator(device).manual_seed(seed)
    return SelectBatch(
        format=format_name,
        shape=shape,
        scores=torch.randn(shape.rows, shape.keys, generator=generator, device=device),
        lengths=torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=device),
        selected=torch.empty(shape.rows, shape.k, dtype=torch.int32, device=device),
    )

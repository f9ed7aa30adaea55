"""Inputs of the fused store: decode rows to shuffled slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsa_crosscheck.compare.device.sizes import CONVENTIONS, HEAD_DIM, NORM_EPS, PAGE, RATIO, ROPE_DIM
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions

POSITIONS = 8192
UNWRITTEN = 0xA5
FLOPS_A_ROW = (2 + 2) * HEAD_DIM + 6 * ROPE_DIM // 2 + (7 + 1) * HEAD_DIM + HEAD_DIM
"""Mean square and scaling of the norm, rotation of pairs, seven Hadamard stages and their factor, the codec's scale."""


@dataclass(frozen=True)
class StoreShape:
    """``rows`` keys, each to a slot of its own."""

    rows: int

    def entry(self) -> dict[str, int]:
        """What a record says of the shape."""
        return {"rows": self.rows, "keys": self.rows}


@dataclass
class StoreBatch:
    """One set of inputs and the pages to fill.

    - ``rows`` float32 [n, 128], ``norm_weight`` float32 [128], ``rope_table`` float32 [positions, 64].
    - ``seq_lens`` int32 [n], multiples of ``compress_ratio`` (a decode plan in which every row stores).
    - ``slots`` int64 [n], a permutation; ``cache`` uint8 [pages, page_bytes].
    """

    format: str
    shape: StoreShape
    conventions: Conventions
    rows: torch.Tensor
    norm_weight: torch.Tensor
    rope_table: torch.Tensor
    seq_lens: torch.Tensor
    slots: torch.Tensor
    cache: torch.Tensor
    compress_ratio: int = RATIO
    page_size: int = PAGE
    norm_eps: float = NORM_EPS

    @property
    def codec(self) -> Codec:
        """How keys are stored."""
        return self.conventions.key

    @property
    def bytes(self) -> int:
        """Each row, its length and slot read once, its record written once."""
        return self.shape.rows * (4 * HEAD_DIM + self.codec.record_bytes(HEAD_DIM) + 4 + 8)

    @property
    def flops(self) -> int:
        """See ``FLOPS_A_ROW``."""
        return self.shape.rows * FLOPS_A_ROW

    @property
    def read_bytes(self) -> int:
        """Bytes of the rows."""
        return 4 * self.rows.numel()

    def clear(self) -> None:
        """``UNWRITTEN`` in place of every stored byte."""
        self.cache.fill_(UNWRITTEN)


def store_batch(format_name: str, shape: StoreShape, seed: int, device: str) -> StoreBatch:
    """Normal rows, a random rotation table, slots in random order over just enough pages."""
    c = CONVENTIONS[format_name]
    generator = torch.Generator(device).manual_seed(seed)
    groups = POSITIONS // RATIO
    pages = -(-shape.rows // PAGE)
    return StoreBatch(
        format=format_name,
        shape=shape,
        conventions=c,
        rows=torch.randn(shape.rows, HEAD_DIM, generator=generator, device=device),
        norm_weight=torch.rand(HEAD_DIM, generator=generator, device=device) + 0.5,
        rope_table=torch.randn(POSITIONS, ROPE_DIM, generator=generator, device=device).clamp(-1, 1),
        seq_lens=(torch.arange(shape.rows, device=device) % groups * RATIO + RATIO).int(),
        slots=torch.randperm(shape.rows, generator=generator, device=device),
        cache=torch.zeros(pages, PAGE * c.key.record_bytes(HEAD_DIM), dtype=torch.uint8, device=device),
    )

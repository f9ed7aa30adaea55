"""Inputs of scoring: query codes against shuffled pages of keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsa_crosscheck.compare.device.batches.finite import finite_pages, finite_query
from dsa_crosscheck.compare.device.sizes import CONVENTIONS, HEAD_DIM, HEADS, PAGE
from dsa_crosscheck.reference.conventions import Conventions


@dataclass(frozen=True)
class ScoreShape:
    """``requests`` with ``keys`` each, ``next_n`` query rows a request."""

    requests: int
    keys: int
    next_n: int = 1

    @property
    def rows(self) -> int:
        """Query rows."""
        return self.requests * self.next_n

    def entry(self) -> dict[str, int]:
        """What a record says of the shape."""
        return {"rows": self.rows, "keys": self.keys, "next_n": self.next_n}


@dataclass
class ScoreBatch:
    """One set of inputs and the place of the result; every code is finite.

    - ``codes`` uint8 [rows, 64, query record], ``weights`` float32 [rows, 64].
    - ``cache`` uint8 [pages, page_bytes] of 64-token pages, ``block_table`` int32 [requests, pages a request].
    - ``request_of_row`` and ``lengths`` int32 [rows]; all lengths are ``shape.keys``.
    - ``scores`` float32 [rows, keys], which a library that allocates its own result may replace.
    """

    format: str
    shape: ScoreShape
    conventions: Conventions
    codes: torch.Tensor
    weights: torch.Tensor
    cache: torch.Tensor
    block_table: torch.Tensor
    request_of_row: torch.Tensor
    lengths: torch.Tensor
    scores: torch.Tensor

    @property
    def bytes(self) -> int:
        """Each key once, each score once, the queries."""
        keys = self.shape.requests * self.shape.keys * self.conventions.key.record_bytes(HEAD_DIM)
        return keys + 4 * self.shape.rows * self.shape.keys + self.codes.numel() + 4 * self.weights.numel()

    @property
    def flops(self) -> int:
        """The dot products; the sum over heads is less than a hundredth of them."""
        return 2 * self.shape.rows * self.shape.keys * HEADS * HEAD_DIM

    @property
    def read_bytes(self) -> int:
        """Bytes of the keys."""
        return self.cache.numel()

    def clear(self) -> None:
        """NaN in place of every score."""
        self.scores.fill_(torch.nan)


def score_batch(format_name: str, shape: ScoreShape, seed: int, device: str) -> ScoreBatch:
    """Random keys of the format in shuffled pages; fp32 scales over three octaves."""
    c = CONVENTIONS[format_name]
    generator = torch.Generator(device).manual_seed(seed)
    pages = -(-shape.keys // PAGE)
    page_bytes = PAGE * c.key.record_bytes(HEAD_DIM)
    raw = torch.randint(
        0, 256, (shape.requests * pages, page_bytes), generator=generator, device=device, dtype=torch.uint8
    )
    record = c.query.record_bytes(HEAD_DIM) if c.query_scale_in == "record" else c.query.value_bytes(HEAD_DIM)
    codes = torch.randint(0, 256, (shape.rows, HEADS, record), generator=generator, device=device, dtype=torch.uint8)
    return ScoreBatch(
        format=format_name,
        shape=shape,
        conventions=c,
        codes=finite_query(codes, c),
        weights=torch.randn(shape.rows, HEADS, generator=generator, device=device),
        cache=finite_pages(raw, c, generator),
        block_table=torch.randperm(shape.requests * pages, generator=generator, device=device)
        .int()
        .view(shape.requests, pages),
        request_of_row=torch.arange(shape.requests, device=device).int().repeat_interleave(shape.next_n),
        lengths=torch.full((shape.rows,), shape.keys, dtype=torch.int32, device=device),
        scores=torch.empty(shape.rows, shape.keys, device=device),
    )

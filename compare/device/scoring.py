"""Scoring on a GPU: time, bytes and correctness of our kernel and of DeepGEMM, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.device.timing import graph_seconds
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score import score_kernel
from dsa_crosscheck.reference.cache import key_layout
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.key_source import CachedKeys
from dsa_crosscheck.reference.models import MODELS
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.query import query_values
from dsa_crosscheck.reference.score import score
from dsa_crosscheck.reference.score_bound import KeySizes, score_bound

HEADS, HEAD_DIM, PAGE = 64, 128, 64
CACHE_BYTES = 60 << 20
"""Inputs are rotated until together they are three times an H200's L2 cache."""
FORMATS = {"fp8": "sglang-v4-fp8", "bf16": "sglang-v4-bf16", "fp4": "sglang-v4-fp4"}
CHECKED_KEYS = 4096


@dataclass(frozen=True)
class Shape:
    """``requests`` with ``keys`` each, ``next_n`` query rows a request."""

    requests: int
    keys: int
    next_n: int = 1

    @property
    def rows(self) -> int:
        """Query rows."""
        return self.requests * self.next_n


@dataclass
class Batch:
    """One set of inputs on the device; every code is finite."""

    shape: Shape
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
        """Bytes that scoring must move: each key once, each score once, the queries."""
        keys = self.shape.requests * self.shape.keys * self.conventions.key.record_bytes(HEAD_DIM)
        return keys + 4 * self.scores.numel() + self.codes.numel() + 4 * self.weights.numel()


def make_batch(name: str, shape: Shape, seed: int) -> Batch:
    """Random keys of the format ``name`` in shuffled pages; fp32 scales over three octaves."""
    c = PRESETS[FORMATS[name]].conventions
    generator = torch.Generator("cuda").manual_seed(seed)
    pages = -(-shape.keys // PAGE)
    record = c.key.record_bytes(HEAD_DIM)
    raw = torch.randint(0, 256, (shape.requests * pages, PAGE * record), generator=generator, device="cuda")
    cache = _finite(raw.to(torch.uint8), c, generator)
    query_record = c.query.record_bytes(HEAD_DIM) if c.query_scale_in == "record" else c.query.value_bytes(HEAD_DIM)
    codes = torch.randint(0, 256, (shape.rows, HEADS, query_record), generator=generator, device="cuda").to(torch.uint8)
    return Batch(
        shape,
        c,
        _finite_query(codes, c),
        torch.randn(shape.rows, HEADS, generator=generator, device="cuda"),
        cache,
        torch.randperm(shape.requests * pages, generator=generator, device="cuda").int().view(shape.requests, pages),
        torch.arange(shape.requests, device="cuda").int().repeat_interleave(shape.next_n),
        torch.full((shape.rows,), shape.keys, dtype=torch.int32, device="cuda"),
        torch.empty(shape.rows, shape.keys, device="cuda"),
    )


def ours(batch: Batch) -> Callable[[], object]:
    """One call of our kernel, checks left out: what a serving loop would launch."""
    export, _ = score_kernel(batch.conventions.key)
    kernel = getattr(kernels_for(batch.cache.device), export)
    paired = batch.shape.next_n == 2
    inputs = (batch.codes, batch.weights, batch.cache, batch.block_table, batch.request_of_row, batch.lengths)
    return lambda: kernel(*inputs, batch.scores, PAGE, paired)


def deepgemm(batch: Batch) -> Callable[[], object]:
    """One call of DeepGEMM's fp8 paged logits on the same bytes; its result goes to ``batch.scores``.

    ``ImportError`` without the package ``sgl-deep-gemm``.
    """
    library: Any = import_module("deep_gemm")
    s = batch.shape
    context = batch.lengths.view(s.requests, s.next_n)
    plan = library.get_paged_mqa_logits_metadata(context, PAGE, library.get_num_sms())
    query = batch.codes.view(torch.float8_e4m3fn).view(s.requests, s.next_n, HEADS, HEAD_DIM)
    cache = batch.cache.view(-1, PAGE, 1, HEAD_DIM + 4)

    def call() -> None:
        batch.scores = library.fp8_paged_mqa_logits(
            query, cache, batch.weights, context, batch.block_table, plan, s.keys, clean_logits=False
        )

    return call


CONTENDERS: dict[str, tuple[Callable[[Batch], Callable[[], object]], tuple[str, ...]]] = {
    "cuda": (ours, tuple(FORMATS)),
    "deepgemm": (deepgemm, ("fp8",)),
}
"""Who is timed, and for which formats."""


def time_scoring(contender: str, name: str, shape: Shape) -> dict[str, object]:
    """Seconds, bytes a second and worst error / bound (per model) of a contender on one shape."""
    make, _ = CONTENDERS[contender]
    first = make_batch(name, shape, 0)
    copies = 1 + 3 * CACHE_BYTES // first.cache.numel()
    batches = [first] + [make_batch(name, shape, seed) for seed in range(1, copies)]
    calls = [make(batch) for batch in batches]
    calls[0]()
    torch.cuda.synchronize()
    factors = worst_factors(first)
    seconds = graph_seconds(calls)
    return {
        "candidate": contender,
        "format": name,
        "stage": "score",
        "rows": shape.rows,
        "keys": shape.keys,
        "next_n": shape.next_n,
        "seconds": seconds,
        "bytes": first.bytes,
        "bytes_per_second": first.bytes / seconds,
        "flops_per_second": 2 * shape.rows * shape.keys * HEADS * HEAD_DIM / seconds,
        "input_sets": copies,
        "worst_error_over_bound": factors,
    }


def worst_factors(batch: Batch) -> dict[str, float]:
    """Largest |score - float64| / bound of the first and last row's first keys, per accumulator model."""
    c, s = batch.conventions, batch.shape
    rows = np.array([0, s.rows - 1])
    seen = min(s.keys, CHECKED_KEYS)
    request = batch.request_of_row.cpu().numpy()[rows]
    cache, table = batch.cache.cpu().numpy(), batch.block_table.cpu().numpy()
    keys = CachedKeys(cache, key_layout(c.key, Geometry(), c.page_order), c.key, table, HEAD_DIM)
    query = query_values(batch.codes[rows].cpu().numpy(), c, HEAD_DIM)
    weights = batch.weights[rows].cpu().numpy().astype(np.float64)
    exact = score(query, weights, keys, request, np.full(2, seen, np.int32), relu=True, rounding="none")
    vectors = [keys.block(int(r), 0, seen) for r in request]
    sizes = KeySizes(
        np.stack([np.linalg.norm(v, axis=-1) for v in vectors]), np.stack([np.abs(v).max(axis=-1) for v in vectors])
    )
    error = np.abs(batch.scores[rows][:, :seen].cpu().numpy().astype(np.float64) - exact.values)
    return {
        name: float((error / score_bound(exact, query, weights, sizes, MODELS[name])).max())
        for name in ("ieee-fp32", "tensor-core-fp8")
    }


def _finite(cache: torch.Tensor, c: Conventions, generator: torch.Generator) -> torch.Tensor:
    """Cache bytes made finite, scales made ordinary; ``cache`` [pages, page_bytes]."""
    values = PAGE * c.key.value_bytes(HEAD_DIM)
    cache[:, :values] = _finite_codes(cache[:, :values], c.key.spec.bits)
    if c.key.spec.bits == 8:
        scales = torch.rand(cache.shape[0], PAGE, generator=generator, device="cuda").mul(3).exp2() / 448
        cache[:, values:] = scales.contiguous().view(torch.uint8)
    elif c.key.spec.bits == 4:
        cache[:, values:] = cache[:, values:] % 4 + 120
    return cache


def _finite_query(codes: torch.Tensor, c: Conventions) -> torch.Tensor:
    values = c.query.value_bytes(HEAD_DIM)
    codes[..., :values] = _finite_codes(codes[..., :values], c.query.spec.bits)
    codes[..., values:] = codes[..., values:] % 4 + 120
    return codes


def _finite_codes(raw: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 8:
        return torch.where(raw & 0x7F == 0x7F, raw - 1, raw)
    if bits == 16:  # bfloat16 between 1/2 and 4 in size: sign, exponent 126 to 128, random mantissa
        pairs = raw.contiguous().view(torch.int16).int()
        exponent = 126 + (pairs >> 7 & 3) % 3
        return (pairs & 0x8000 | exponent << 7 | pairs & 0x7F).to(torch.int16).view(torch.uint8)
    return raw

"""Paged caches of random codes for tests, with float64 values read by ml_dtypes."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch

from dsa_crosscheck.reference.codec_spec import Codec

HEAD_DIM = 128
FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
BF16 = Codec("bf16")
FP4 = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even")
CODECS = {"fp8": FP8, "bf16": BF16, "fp4": FP4}
POISON = 0xFF
"""As an fp8 code, a bf16 half, a float32 scale or a UE8M0 scale, 0xFF bytes are NaN."""


def random_vectors(rng: np.random.Generator, codec: Codec, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Finite random values uint8 [*shape, value bytes] and scales uint8 [*shape, scale bytes]."""
    if codec is FP8:
        codes = rng.integers(0, 256, (*shape, HEAD_DIM)).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0
        scales = np.exp2(rng.uniform(-9, 3, (*shape, 1))).astype(np.float32)
        return codes, scales.view(np.uint8)
    if codec is BF16:
        values = rng.standard_normal((*shape, HEAD_DIM)).astype(ml_dtypes.bfloat16)
        return values.view(np.uint8), np.zeros((*shape, 0), np.uint8)
    return (
        rng.integers(0, 256, (*shape, HEAD_DIM // 2)).astype(np.uint8),
        rng.integers(110, 130, (*shape, 4)).astype(np.uint8),
    )


def exact_values(codec: Codec, values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Float64 elements, fp4 group scales applied, fp8 scale not."""
    if codec is FP8:
        return values.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    if codec is BF16:
        return values.view(ml_dtypes.bfloat16).astype(np.float64)
    nibbles = np.stack((values & 15, values >> 4), axis=-1).reshape(*values.shape[:-1], HEAD_DIM)
    elements = nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    group = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return elements * np.repeat(group, HEAD_DIM // 4, axis=-1)


def key_factor(codec: Codec, scales: np.ndarray) -> np.ndarray:
    """Float64 factor [...] that multiplies after the head sum."""
    if codec is FP8:
        return scales.view(np.float32)[..., 0].astype(np.float64)
    return np.ones(scales.shape[:-1])


@dataclass(frozen=True)
class PagedCase:
    """Arguments of a scorer, its float64 scores and a bound on any float32 evaluation's error."""

    arguments: tuple[torch.Tensor, ...]
    exact: np.ndarray
    bound: np.ndarray


def paged_case(
    codec: Codec, page_size: int, lengths: list[int], heads: int, seed: int, requests: list[int] | None = None
) -> PagedCase:
    """Rows of ``lengths`` (row i belongs to ``requests[i]``, by default its own request).

    Pages are scattered with unused ones between; unused bytes and unreached tokens are poison;
    block tables end in -1. The bound counts one rounding for every operation on the longest path of
    a sum in any order: 128 products and sums, a weight and its sum for each head, a factor.
    """
    rng = np.random.default_rng(seed)
    rows = len(lengths)
    requests = list(range(rows)) if requests is None else requests
    reach = [0] * (max(requests, default=-1) + 1)
    for n, request in zip(lengths, requests, strict=True):
        reach[request] = max(reach[request], n)
    max_pages = max((-(-n // page_size) for n in reach), default=0) + 2
    pages = 2 * sum(-(-n // page_size) for n in reach) + 1
    record = codec.record_bytes(HEAD_DIM)
    value_bytes = codec.value_bytes(HEAD_DIM)
    cache = np.full((pages, page_size * record), POISON, np.uint8)
    table = np.full((len(reach), max_pages), -1, np.int32)
    free = list(rng.permutation(pages))

    query, query_scale = random_vectors(rng, codec, rows, heads)
    weights = rng.standard_normal((rows, heads)).astype(np.float32)
    q = exact_values(codec, query, query_scale)
    exact = np.full((rows, max(lengths, default=0)), -np.inf)
    bound = np.zeros_like(exact)
    for request, count in enumerate(reach):
        values, scales = random_vectors(rng, codec, count)
        for token in range(count):
            logical, offset = divmod(token, page_size)
            if offset == 0:
                table[request, logical] = free.pop()
            page = cache[table[request, logical]]
            page[offset * value_bytes : (offset + 1) * value_bytes] = values[token]
            at = page_size * value_bytes + offset * (record - value_bytes)
            page[at : at + record - value_bytes] = scales[token]
        k, factor = exact_values(codec, values, scales), key_factor(codec, scales)
        for row in (i for i in range(rows) if requests[i] == request):
            n = lengths[row]
            product = q[row] @ k[:n].T
            exact[row, :n] = factor[:n] * (weights[row].astype(np.float64) @ np.maximum(product, 0.0))
            size = factor[:n] * (np.abs(weights[row]).astype(np.float64) @ (np.abs(q[row]) @ np.abs(k[:n]).T))
            roundings = HEAD_DIM + heads + 2
            bound[row, :n] = 1.001 * roundings * 2.0**-24 * size
    if codec is FP4:
        query = np.concatenate((query, query_scale), axis=-1)
    arrays = (query, weights, cache, table, np.array(requests, np.int32), np.array(lengths, np.int32))
    return PagedCase(tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays), exact, bound)


def assert_within(scores: torch.Tensor, case: PagedCase) -> None:
    """-inf exactly where the case has it, and the error elsewhere at most the bound."""
    got = scores.numpy().astype(np.float64)
    assert got.shape == case.exact.shape
    visible = np.isfinite(case.exact)
    np.testing.assert_array_equal(np.isneginf(got), ~visible)
    error = np.abs(got[visible] - case.exact[visible])
    assert (error <= case.bound[visible]).all(), f"worst {np.max(error / case.bound[visible])} of the bound"

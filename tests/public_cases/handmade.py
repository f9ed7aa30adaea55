"""Inputs made by hand: every key, query and position given, pages permuted, RoPE on or off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs

EXACT = Conventions(
    key=Codec("exact"),
    query=Codec("exact"),
    hadamard_key=False,
    hadamard_query=False,
    hadamard_order=None,
    hadamard_scale=None,
    query_scale_in=None,
)
"""Float32 keys and queries, no transform: with no turning a score is what the arrays say."""

ROTATED = replace(EXACT, hadamard_key=True, hadamard_query=True, hadamard_order="natural", hadamard_scale="orthonormal")
"""The same with the Hadamard transform on both sides."""


def inputs_of(
    geometry: Geometry,
    keys: Sequence[np.ndarray],
    rows: Sequence[tuple[int, int]],
    query: np.ndarray,
    gate: np.ndarray | None = None,
    *,
    norm_weight: np.ndarray | None = None,
    turned: bool = False,
) -> Inputs:
    """One request for each array of ``keys`` [n, head_dim], searched by ``rows`` of (request, raw position).

    ``query`` [rows, heads, head_dim]; ``gate`` [rows, heads], ones by default. Pages are handed out from
    the last to the first, with one to spare. ``turned``: RoPE with real angles, not the identity.
    """
    counts = np.array([len(k) for k in keys], np.int64)
    held = -(-counts // geometry.page_size)
    table = np.full((counts.size, int(held.max()) + 1), -1, np.int32)
    free = iter(range(int(held.sum()), 0, -1))
    for request, number in enumerate(held):
        table[request, :number] = [next(free) for _ in range(number)]
    request = np.repeat(np.arange(counts.size), counts)
    index = np.concatenate([np.arange(n) for n in counts])
    page = table[request, index // geometry.page_size].astype(np.int64)
    position = np.array([p for _, p in rows], np.int64)
    last = max(int(position.max(initial=0)), int(counts.max()) * geometry.compress_ratio)
    angle = np.outer(np.arange(last + 1.0) if turned else np.zeros(last + 1), 0.7 ** np.arange(geometry.rope_dim // 2))
    dim = geometry.head_dim
    return Inputs(
        geometry=geometry,
        pages=int(held.sum()) + 2,
        pooled=np.concatenate(keys).astype(np.float32),
        norm_weight=np.ones(dim, np.float32) if norm_weight is None else norm_weight.astype(np.float32),
        norm_bias=np.zeros(dim, np.float32),
        rope_table=np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(last + 1, -1).astype(np.float32),
        key_index=index.astype(np.int64),
        key_request=request.astype(np.int32),
        slots=page * geometry.page_size + index % geometry.page_size,
        query=query.astype(np.float32),
        gate=np.ones(query.shape[:2], np.float32) if gate is None else gate.astype(np.float32),
        query_positions=position,
        block_table=table,
        request_of_row=np.array([r for r, _ in rows], np.int32),
        key_counts=counts,
    )


def normal(seed: int, *shape: int) -> np.ndarray:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def random_request(
    geometry: Geometry, keys: int, rows: int, *, seed: int = 0, turned: bool = True, spread: bool = False
) -> Inputs:
    """One request of normal keys; its rows query from the last key's newest token.

    ``spread``: positions from the first key to the last, not all at the end.
    """
    end = keys * geometry.compress_ratio - 1
    first = geometry.compress_ratio - 1
    positions = np.linspace(first, end, rows).astype(int) if spread else np.full(rows, end)
    return inputs_of(
        geometry,
        [normal(seed, keys, geometry.head_dim)],
        [(0, int(p)) for p in positions],
        normal(seed + 1, rows, geometry.heads, geometry.head_dim),
        normal(seed + 2, rows, geometry.heads),
        turned=turned,
    )


def aimed(scores: np.ndarray, head_dim: int) -> np.ndarray:
    """Keys [n, head_dim] whose product with the first axis, after RMSNorm, is ``scores`` [n].

    A normed key is head_dim^1/2 long, and so no score may be larger. Its rest is along the second axis.
    """
    if (np.abs(scores) > head_dim**0.5).any():
        raise ValueError(f"`aimed(scores=...)` should be at most {head_dim**0.5:.3g} in magnitude")
    keys = np.zeros((scores.size, head_dim))
    keys[:, 0], keys[:, 1] = scores, np.sqrt(np.maximum(head_dim - scores.astype(np.float64) ** 2, 0.0))
    return keys


def along_first(rows: int, heads: int, head_dim: int) -> np.ndarray:
    """Queries [rows, heads, head_dim] that are the first axis."""
    query = np.zeros((rows, heads, head_dim))
    query[:, :, 0] = 1.0
    return query


def on_pages(inputs: Inputs, pages: Sequence[int]) -> Inputs:
    """A single request's keys on given physical pages, in logical order."""
    size = inputs.geometry.page_size
    page = np.array(pages, np.int64)
    table = np.full((1, page.size + 1), -1, np.int32)
    table[0, :-1] = page
    slots = page[inputs.key_index // size] * size + inputs.key_index % size
    return replace(inputs, pages=max(pages) + 1, block_table=table, slots=slots)

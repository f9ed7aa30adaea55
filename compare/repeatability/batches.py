"""The ways in which one batch is run again: reordered, and cut into chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dsa_crosscheck.reference.causal import visible_keys
from dsa_crosscheck.reference.inputs import Inputs

CHUNKS = (4, 3, 1)
"""Rows of a chunk; one row is the row alone."""


@dataclass(frozen=True)
class Arrangement:
    """``name`` for a report; ``parts``: the rows of each call, in order; ``requests``: their new order, or None."""

    name: str
    parts: tuple[np.ndarray, ...]
    requests: np.ndarray | None = None


def arrangements(rows: int, requests: int, order: np.ndarray | None = None) -> Iterator[Arrangement]:
    """Rows reversed, requests reversed, and chunks of consecutive rows.

    ``order`` [rows]: which rows count as consecutive, by default as they come. What would repeat the
    batch as it is (one row, one request, or a chunk that holds all rows) is left out.
    """
    sequence = np.arange(rows) if order is None else order
    if rows > 1:
        yield Arrangement("rows reversed", (np.arange(rows)[::-1],))
    if requests > 1:
        yield Arrangement("requests reversed", (np.arange(rows),), np.arange(requests)[::-1])
    for size in CHUNKS:
        if size < rows:
            parts = tuple(sequence[start : start + size] for start in range(0, rows, size))
            yield Arrangement(f"chunks of {size}" if size > 1 else "rows alone", parts)


def with_rows(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """Only ``rows``, in that order, over the same keys."""
    return replace(
        inputs,
        query=np.ascontiguousarray(inputs.query[rows]),
        gate=np.ascontiguousarray(inputs.gate[rows]),
        query_positions=np.ascontiguousarray(inputs.query_positions[rows]),
        request_of_row=np.ascontiguousarray(inputs.request_of_row[rows]),
    )


def chunk_of(inputs: Inputs, rows: np.ndarray, causal: str) -> Inputs:
    """Only ``rows``, and of the keys only those that one of them may see, as a chunk of prefill has them."""
    ratio = inputs.geometry.compress_ratio
    seen = np.zeros(inputs.key_counts.size, np.int64)
    np.maximum.at(seen, inputs.request_of_row[rows], visible_keys(inputs.query_positions[rows], ratio, causal))
    kept = inputs.key_index < seen[inputs.key_request]
    return replace(
        with_rows(inputs, rows),
        pooled=inputs.pooled[kept],
        key_index=inputs.key_index[kept],
        key_request=inputs.key_request[kept],
        slots=inputs.slots[kept],
        key_counts=np.minimum(inputs.key_counts, seen),
    )


def renamed(inputs: Inputs, order: np.ndarray) -> Inputs:
    """The same batch with request ``order[i]`` called ``i``; keys are listed request by request again."""
    name = np.empty_like(order)
    name[order] = np.arange(order.size)
    request = name[inputs.key_request]
    listed = np.argsort(request, kind="stable")
    return replace(
        inputs,
        pooled=inputs.pooled[listed],
        key_index=inputs.key_index[listed],
        key_request=request[listed].astype(np.int32),
        slots=inputs.slots[listed],
        block_table=np.ascontiguousarray(inputs.block_table[order]),
        request_of_row=name[inputs.request_of_row].astype(np.int32),
        key_counts=np.ascontiguousarray(inputs.key_counts[order]),
    )


def by_position(inputs: Inputs) -> np.ndarray:
    """Rows in the order of prefill: by request, then by raw position."""
    return np.lexsort((inputs.query_positions, inputs.request_of_row))

"""Reading and writing records in a paged cache."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.layout import PageLayout


def key_layout(codec: Codec, geometry: Geometry, page_order: str) -> PageLayout:
    """Layout of the index-key cache for a codec: fp8 8,448, fp4 4,352, bf16 16,384 B a 64-token page."""
    value_bytes = codec.value_bytes(geometry.head_dim)
    return PageLayout(geometry.page_size, value_bytes, codec.record_bytes(geometry.head_dim) - value_bytes, page_order)


def write_records(cache: np.ndarray, layout: PageLayout, records: np.ndarray, slots: np.ndarray) -> None:
    """Store ``records`` [n, record_bytes] at ``slots`` [n] of ``cache`` [pages, page_bytes] in place.

    A slot is page * page_size + offset; negative slots are skipped. ``ValueError`` for a slot past
    the cache or a cache of another page size.
    """
    _check(cache, layout, slots)
    stored = slots >= 0
    page, offset = np.divmod(slots[stored].astype(np.int64), layout.page_size)
    cache[page[:, None], layout.addresses[offset]] = records[stored]


def read_records(cache: np.ndarray, layout: PageLayout, slots: np.ndarray) -> np.ndarray:
    """Records [n, record_bytes] at non-negative ``slots`` [n]; ``ValueError`` as ``write_records``."""
    _check(cache, layout, slots)
    if slots.size and slots.min() < 0:
        raise ValueError(f"`read_records(slots=...)` should not be negative, got {slots.min()}")
    page, offset = np.divmod(slots.astype(np.int64), layout.page_size)
    return cache[page[:, None], layout.addresses[offset]]


def request_slots(block_table: np.ndarray, request: int, index: np.ndarray, page_size: int) -> np.ndarray:
    """Physical slots of logical keys ``index`` of a request, int64.

    ``ValueError`` when a key is negative, lies past the table or on an unset (negative) page: numpy
    and JAX would wrap or clamp such an index to a real page.
    """
    page = index // page_size
    row = block_table[request]
    inside = (index >= 0) & (page < row.size)
    has_page = inside.copy()
    has_page[inside] = row[page[inside]] >= 0
    if not has_page.all():
        bad = int(index[~has_page][0])
        raise ValueError(f"`request_slots(index=...)`: key {bad} of request {request} has no page in the block table")
    return row[page].astype(np.int64) * page_size + index % page_size


def _check(cache: np.ndarray, layout: PageLayout, slots: np.ndarray) -> None:
    if cache.dtype != np.uint8 or cache.ndim != 2 or cache.shape[1] != layout.page_bytes:
        raise ValueError(f"`cache` should be uint8 [pages, {layout.page_bytes}], got {cache.dtype} {list(cache.shape)}")
    limit = cache.shape[0] * layout.page_size
    if slots.size and slots.max() >= limit:
        raise ValueError(f"`slots` should be below {limit} ({cache.shape[0]} pages), got {slots.max()}")

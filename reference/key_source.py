"""Where the scorer finds key vectors: a paged cache, or exact arrays that were never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dsa_crosscheck.reference.cache import read_records, request_slots
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.layout import PageLayout
from dsa_crosscheck.reference.quantise import dequantise
from dsa_crosscheck.reference.record import unpack_record


class KeySource(Protocol):
    """Gives the scorer a few keys at a time, so that no copy of all of them exists."""

    def block(self, request: int, start: int, stop: int) -> np.ndarray:
        """Float64 [stop - start, head_dim] of the logical keys start..stop-1 of ``request``."""
        ...


@dataclass(frozen=True)
class CachedKeys:
    """Keys dequantised from the bytes of a paged cache, through the block table.

    ``ValueError`` when a requested key has no page, or its page is outside the cache.
    """

    cache: np.ndarray
    layout: PageLayout
    codec: Codec
    block_table: np.ndarray
    head_dim: int

    def block(self, request: int, start: int, stop: int) -> np.ndarray:
        """Float64 keys, scales applied."""
        slots = request_slots(self.block_table, request, np.arange(start, stop), self.layout.page_size)
        records = read_records(self.cache, self.layout, slots)
        return dequantise(unpack_record(records, self.codec, self.head_dim), self.codec)


@dataclass(frozen=True)
class ExactKeys:
    """Unquantised float64 ``values`` [keys, head_dim], found by (request, index in the request)."""

    values: np.ndarray
    key_request: np.ndarray
    key_index: np.ndarray

    def block(self, request: int, start: int, stop: int) -> np.ndarray:
        """Float64 keys. ``ValueError`` when one of them is missing."""
        at = np.flatnonzero((self.key_request == request) & (self.key_index >= start) & (self.key_index < stop))
        if at.size != stop - start:
            raise ValueError(f"`ExactKeys`: request {request} has {at.size} of the keys {start} to {stop - 1}")
        return self.values[at[np.argsort(self.key_index[at])]]

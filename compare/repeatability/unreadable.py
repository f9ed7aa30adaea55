"""One batch in which every byte that a row may not read is that row's own, and can be overwritten.

Rows of one request share pages but see different lengths: a byte that is past one row's length is a
visible key of another. So each row here is a request of its own. It shares the pages that it sees in
full, has a private copy of its last page, and nothing else of the cache is its business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.layout import PageLayout

PAGES = "bytes of unused pages"
VALUES = "bytes of unused slots"
SCALES = "scale bytes of unused slots"
TABLE = "block-table entries past the row's length"
AROUND = "memory around the cache"
SPARE_COLUMNS = 3
"""Columns of the block table past the longest row, one for each way to be wrong."""


@dataclass(frozen=True)
class Isolated:
    """The rows of ``batch`` with private last pages.

    ``clean``: the batch with nothing poisoned (cells of no key are zero, spare table entries -1).
    ``private`` [rows]: the page that is a row's own, or -1 for a row that ends with its page.
    ``origin`` [rows]: that page's number in the batch it was copied from. ``layout``: of a page.
    """

    clean: ScorerBatch
    private: np.ndarray
    origin: np.ndarray
    layout: PageLayout

    @staticmethod
    def of(setup: Setup) -> Isolated:
        """The scorers' input, rearranged; one page more than it needs is in use nowhere."""
        batch, layout = ScorerBatch.of(setup), setup.layout
        cache = setup.scorer_input[0]
        lengths = batch.lengths.astype(np.int64)
        full, rest = np.divmod(lengths, layout.page_size)
        partial = np.flatnonzero(rest > 0)
        origin = np.full(lengths.size, -1, np.int64)
        origin[partial] = batch.block_table[batch.request_of_row[partial], full[partial]]
        private = np.full(lengths.size, -1, np.int64)
        private[partial] = cache.shape[0] + np.arange(partial.size)
        width = -(-int(lengths.max(initial=0)) // layout.page_size) + SPARE_COLUMNS
        table = np.full((lengths.size, width), -1, np.int32)
        shared = min(width, batch.block_table.shape[1])
        table[:, :shared] = batch.block_table[batch.request_of_row, :shared]
        table[np.arange(width) >= full[:, None]] = -1
        table[partial, full[partial]] = private[partial]
        spare = np.zeros((1, cache.shape[1]), np.uint8)
        isolated = Isolated(
            replace(
                batch,
                cache=np.concatenate([cache, cache[origin[partial]], spare]),
                block_table=table,
                request_of_row=np.arange(lengths.size, dtype=np.int32),
            ),
            private,
            origin,
            layout,
        )
        cells = isolated.masks[PAGES] | isolated.masks[VALUES] | isolated.masks[SCALES]
        clean = np.where(cells, np.uint8(0), isolated.cache)
        return replace(isolated, clean=replace(isolated.clean, cache=clean))

    @property
    def cache(self) -> np.ndarray:
        """Bytes of ``clean``, uint8 [pages, page_bytes]."""
        assert isinstance(self.clean.cache, np.ndarray)
        return self.clean.cache

    @cached_property
    def masks(self) -> dict[str, np.ndarray]:
        """bool [pages, page_bytes] of each kind of byte that no row may read."""
        table, layout = self.clean.block_table, self.layout
        unused = np.ones(self.cache.shape[0], bool)
        unused[table[table >= 0]] = False
        masks = {name: np.zeros(self.cache.shape, bool) for name in (PAGES, VALUES, SCALES)}
        masks[PAGES][unused] = True
        for row in np.flatnonzero(self.private >= 0):
            free = layout.addresses[int(self.clean.lengths[row]) % layout.page_size :]
            masks[VALUES][self.private[row], free[:, : layout.value_bytes]] = True
            masks[SCALES][self.private[row], free[:, layout.value_bytes :]] = True
        return masks

    @property
    def spare(self) -> np.ndarray:
        """bool [rows, columns]: entries of the block table that a row may not follow."""
        needed = -(-self.clean.lengths.astype(np.int64) // self.layout.page_size)
        return np.arange(self.clean.block_table.shape[1]) >= needed[:, None]

    def place(self, region: str, row: int) -> str:
        """Where the unreadable bytes of ``region`` are for ``row``, as the original batch numbers pages."""
        length = int(self.clean.lengths[row])
        if region in (VALUES, SCALES) and self.private[row] >= 0:
            first = length % self.layout.page_size
            return f"page {self.origin[row]} offset {first}..{self.layout.page_size - 1}"
        if region == TABLE:
            return f"logical page {-(-length // self.layout.page_size)} onwards"
        return ""

"""Where the bytes of a paged cache lie: every layout is one table of byte addresses.

A page holds ``page_size`` records. A layout maps (token in page, byte of its record) to an offset
in the page; a record is the token's values followed by its scales. Reading and writing are then a
single indexed copy, and two layouts differ only in their table.

Sources: values-then-scales, fp8 8,448 B and fp4 4,352 B pages: SGLang deepseek_v4 memory pool and
DeepGEMM ``fp8_fp4_paged_mqa_logits``; 16 x 16 tiles: SGLang's HIP preshuffle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

TILE = 16


@dataclass(frozen=True)
class PageLayout:
    """Byte layout of one page.

    ``value_bytes`` and ``scale_bytes`` are per token. ``page_order`` names a row of
    ``PAGE_ORDERS``; ``page_align`` rounds a page up to a multiple of that many bytes. Raises
    ``ValueError`` for an unknown order, a non-positive size, or a tiled order whose page or record
    is not a multiple of the tile.
    """

    page_size: int
    value_bytes: int
    scale_bytes: int
    page_order: str = "values-then-scales"
    page_align: int = 1

    def __post_init__(self) -> None:
        if self.page_order not in PAGE_ORDERS:
            raise ValueError(
                f"`PageLayout(page_order=...)` should be one of {tuple(PAGE_ORDERS)}, got {self.page_order!r}"
            )
        if self.page_size < 1 or self.value_bytes < 1 or self.scale_bytes < 0 or self.page_align < 1:
            raise ValueError(
                "`PageLayout` needs page_size >= 1, value_bytes >= 1, scale_bytes >= 0 and page_align >= 1, got "
                f"{self.page_size}, {self.value_bytes}, {self.scale_bytes}, {self.page_align}"
            )
        height, width = self.tile
        if self.page_order == "tiles-16x16" and (self.page_size % height or self.value_bytes % width):
            raise ValueError(
                f"`PageLayout(page_order='tiles-16x16')` should have whole {height} x {width} tiles, got "
                f"page_size={self.page_size}, value_bytes={self.value_bytes}"
            )

    @property
    def tile(self) -> tuple[int, int]:
        """Tokens and bytes of a tile; a page or record shorter than 16 is one tile of its own size."""
        return min(TILE, self.page_size), min(TILE, self.value_bytes)

    @property
    def record_bytes(self) -> int:
        """Bytes of one token: its values, then its scales."""
        return self.value_bytes + self.scale_bytes

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, padding included."""
        return -(-self.page_size * self.record_bytes // self.page_align) * self.page_align

    @cached_property
    def addresses(self) -> np.ndarray:
        """Offset in the page of every record byte, int64 [page_size, record_bytes]; a bijection."""
        token = np.arange(self.page_size, dtype=np.int64)[:, None]
        byte = np.arange(self.record_bytes, dtype=np.int64)[None, :]
        return PAGE_ORDERS[self.page_order](self, token, byte)


def _values_then_scales(layout: PageLayout, token: np.ndarray, byte: np.ndarray) -> np.ndarray:
    value = token * layout.value_bytes + byte
    return np.where(byte < layout.value_bytes, value, _scale_address(layout, token, byte))


def _token_interleaved(layout: PageLayout, token: np.ndarray, byte: np.ndarray) -> np.ndarray:
    return token * layout.record_bytes + byte


def _tiles_16x16(layout: PageLayout, token: np.ndarray, byte: np.ndarray) -> np.ndarray:
    height, width = layout.tile
    band = token // height * (height * layout.value_bytes)
    tile = band + byte // width * (height * width) + token % height * width + byte % width
    return np.where(byte < layout.value_bytes, tile, _scale_address(layout, token, byte))


def _scale_address(layout: PageLayout, token: np.ndarray, byte: np.ndarray) -> np.ndarray:
    return layout.page_size * layout.value_bytes + token * layout.scale_bytes + (byte - layout.value_bytes)


PAGE_ORDERS: dict[str, Callable[[PageLayout, np.ndarray, np.ndarray], np.ndarray]] = {
    "values-then-scales": _values_then_scales,
    "token-interleaved": _token_interleaved,
    "tiles-16x16": _tiles_16x16,
}
"""Page byte orders by name."""

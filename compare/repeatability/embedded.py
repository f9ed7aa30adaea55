"""A cache inside a larger buffer, so that what lies before and after it is known and can be checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

GUARD_PAGES = 16
"""Pages before and after the cache: enough of them keep the cache aligned to 16 bytes."""


@dataclass(frozen=True)
class Embedded:
    """``cache``: uint8 [pages, page_bytes], a contiguous view of ``buffer`` with guard pages around it."""

    buffer: torch.Tensor

    @staticmethod
    def around(cache: np.ndarray, guard: np.ndarray, device: str | torch.device) -> Embedded:
        """A copy of ``cache`` on ``device`` between pages that all hold ``guard`` uint8 [page_bytes]."""
        pages = np.broadcast_to(guard, (GUARD_PAGES, guard.size))
        return Embedded(torch.from_numpy(np.concatenate([pages, cache, pages])).to(device))

    @property
    def cache(self) -> torch.Tensor:
        """The view that a candidate gets."""
        return self.buffer[GUARD_PAGES:-GUARD_PAGES]

    def guards(self) -> np.ndarray:
        """Both guards, uint8 [2, GUARD_PAGES, page_bytes]: before the cache, and after it."""
        pages = (self.buffer[:GUARD_PAGES], self.buffer[-GUARD_PAGES:])
        return np.stack([page.cpu().numpy() for page in pages])

    def changed(self, guard: np.ndarray) -> tuple[int, str]:
        """How many guard bytes are no longer ``guard``, and where the first run of them is."""
        return guard_damage(self.guards() != guard, self.cache.shape[0])


def guard_damage(changed: np.ndarray, pages: int) -> tuple[int, str]:
    """Count of a bool mask of ``Embedded.guards``, and the first changed page's bytes in words.

    Pages are numbered as the candidate numbers them: negative before the cache, from ``pages`` after.
    """
    if not changed.any():
        return 0, ""
    side, page = (int(i) for i in np.argwhere(changed.any(axis=2))[0])
    bytes_ = np.flatnonzero(changed[side, page])
    number = page - GUARD_PAGES if side == 0 else pages + page
    where = "before" if side == 0 else "after"
    return int(changed.sum()), f"page {number} ({where} the cache) bytes {bytes_[0]}..{bytes_[-1]}"

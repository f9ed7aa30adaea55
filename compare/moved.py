"""A move of cached tokens (as after accepting a draft tree): moved and unmoved records, at several page sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.cache import key_layout, read_records, write_records
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.layout import PageLayout

Mover = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], None]
"""``move(cache uint8 [pages, page_bytes], source int64 [n], destination int64 [n], page_size)``: record of
token slot ``source[i]`` to ``destination[i]``, in place; all sources are read before anything is written."""

PAGE_SIZES = (1, 16, 64)
LEAST_PAGES = 3


@dataclass(frozen=True)
class Moved:
    """What a move did at one page size: ``moved`` records that are wrong, ``unmoved`` ones that changed."""

    page_size: int
    verdict: Verdict
    moved: int
    unmoved: int
    note: str


@dataclass(frozen=True)
class MoveCheck:
    """A move at each page size."""

    results: tuple[Moved, ...]

    @property
    def verdict(self) -> Verdict:
        """The first failure's, else ``IDENTICAL``."""
        return next((r.verdict for r in self.results if r.verdict.failed), Verdict.IDENTICAL)

    def __str__(self) -> str:
        """Which page sizes fail, then a sentence for each that does."""
        bad = [r for r in self.results if r.verdict.failed]
        sizes = ", ".join(str(r.page_size) for r in bad)
        good = ", ".join(str(r.page_size) for r in self.results if not r.verdict.failed)
        if not bad:
            return f"tokens are moved right at page size {good}"
        head = f"fails at page size {sizes}" + (f", not at {good}" if good else "")
        return "\n".join([head, *(f"  page size {r.page_size}: {r.note}" for r in bad)])


def check_move(
    move: Mover,
    conventions: Conventions,
    moves: Sequence[tuple[int, int]],
    *,
    geometry: Geometry | None = None,
    page_sizes: Iterable[int] = PAGE_SIZES,
) -> MoveCheck:
    """Move tokens by ``moves`` (source slot, destination slot) in a cache whose every record is different.

    The cache has the pages that the slots need, at least three. ``geometry`` gives the head size.
    ``VIOLATION``: a record that is not what it should be; ``MALFORMED``: the move raises.
    ``ValueError`` for no moves, a negative slot or a destination named twice.
    """
    slots = np.array(moves, np.int64).reshape(-1, 2)
    if not slots.size or slots.min() < 0 or np.unique(slots[:, 1]).size != len(slots):
        raise ValueError(
            "`check_move(moves=...)` should be (source, destination) slots, none negative and each destination once, "
            f"got {moves}"
        )
    return MoveCheck(tuple(_at(move, conventions, slots, geometry or Geometry(), size) for size in page_sizes))


def _at(move: Mover, conventions: Conventions, moves: np.ndarray, geometry: Geometry, page_size: int) -> Moved:
    sizes = Geometry(head_dim=geometry.head_dim, rope_dim=geometry.rope_dim, page_size=page_size)
    layout = key_layout(conventions.key, sizes, conventions.page_order)
    pages = max(LEAST_PAGES, int(moves.max()) // page_size + 1)
    before = np.random.default_rng(page_size).integers(0, 256, (pages, layout.page_bytes), np.uint8)
    expected = before.copy()
    write_records(expected, layout, read_records(before, layout, moves[:, 0]), moves[:, 1])
    given = torch.from_numpy(before.copy())
    source, destination = (torch.from_numpy(moves[:, side].copy()) for side in (0, 1))
    try:
        move(given, source, destination, page_size)
    except Exception as error:
        return Moved(page_size, Verdict.MALFORMED, 0, 0, f"the move raised {type(error).__name__}: {error}")
    return _judge(given.numpy(), before, expected, moves, layout)


def _judge(after: np.ndarray, before: np.ndarray, expected: np.ndarray, moves: np.ndarray, layout: PageLayout) -> Moved:
    every = np.arange(after.shape[0] * layout.page_size)
    wrong = (read_records(after, layout, every) != read_records(expected, layout, every)).any(axis=1)
    is_moved = np.isin(every, moves[:, 1])
    lost, changed = np.flatnonzero(wrong & is_moved), np.flatnonzero(wrong & ~is_moved)
    notes = []
    if lost.size:
        first = int(lost[0])
        meant = int(moves[moves[:, 1] == first, 0][0])
        more = f" (and {lost.size - 1} more)" if lost.size > 1 else ""
        notes.append(f"token {first} does not hold token {meant}'s bytes{more}")
    if changed.size:
        notes.append(f"{changed.size} tokens that should not have changed did{_pages(after, before, changed, layout)}")
    verdict = Verdict.VIOLATION if notes else Verdict.IDENTICAL
    return Moved(layout.page_size, verdict, int(lost.size), int(changed.size), "; ".join(notes))


def _pages(after: np.ndarray, before: np.ndarray, changed: np.ndarray, layout: PageLayout) -> str:
    """Which whole pages now hold another page's bytes; else the first changed token."""
    parts = []
    for page in np.unique(changed // layout.page_size).tolist():
        sources = np.flatnonzero((before == after[page]).all(axis=1))
        if not sources.size:
            return f", token {changed[0]} first"
        parts.append(f"page {page} was overwritten by page {sources[0]}")
    return ": " + ", ".join(parts)

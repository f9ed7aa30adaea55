"""What fits: the largest context, or chunk of rows, of a read path within a number of bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dsa_crosscheck.compare.studies.read_path import ReadPath, ReadSizes, footprint

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
LIMIT = 1 << 40
"""No search goes past this many rows or pages."""


def parse_bytes(text: str) -> int:
    """``48GiB``, ``512 MiB``, ``1.5TiB`` or a plain number of bytes; ``ValueError`` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"`budget` should be a positive number of bytes such as 48GiB, got {text!r}")
    return int(float(match[1]) * UNITS[match[2]])


def needed(path: ReadPath, sizes: ReadSizes) -> int:
    """Bytes of cache (one layer), query codes, head weights and the path's peak."""
    return sizes.cache_bytes + sizes.query_bytes + footprint(path.requests(sizes)).peak


def largest_rows(path: ReadPath, sizes: ReadSizes, budget: int) -> int:
    """Most rows scored at once against ``sizes.keys`` keys within ``budget`` bytes; 0 if not one fits."""
    return _largest(lambda rows: needed(path, replace(sizes, rows=rows)) <= budget)


def largest_context(path: ReadPath, sizes: ReadSizes, budget: int) -> int:
    """Most raw tokens, in whole pages of keys, whose keys ``sizes.rows`` rows can be scored against; 0 if none."""
    g = sizes.geometry
    pages = _largest(lambda pages: needed(path, replace(sizes, keys=pages * g.page_size)) <= budget)
    return pages * g.page_size * g.compress_ratio


def _largest(fits: Callable[[int], bool]) -> int:
    """Largest n with ``fits(n)``, by doubling and halving; ``fits`` holds up to some n and not past it."""
    if not fits(1):
        return 0
    low = 1
    while fits(2 * low):
        low *= 2
        if low > LIMIT:
            raise ValueError(f"`budget` should limit the path, which still fits at {low}")
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

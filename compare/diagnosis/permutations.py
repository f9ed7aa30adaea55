"""Names for orders of the elements of a vector."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.hadamard import row_order
from dsa_crosscheck.reference.lanes import LANES, lane_permutation


def permutation_name(order: np.ndarray) -> str:
    """What kind of permutation ``order`` (place -> element, int64 [n]) is, or the list itself.

    Lane-major (lane l holds V*l to V*l + V-1) is the natural order. A transpose of a b x a table is
    ``strided``: each of a lanes holds elements l, l + a, l + 2a, ... ``ValueError`` when ``order`` is
    no permutation.
    """
    n = order.size
    index = np.arange(n)
    if not np.array_equal(np.sort(order), index):
        raise ValueError(f"`permutation_name(order=...)` should hold each of 0 to {n - 1} once, got {order.tolist()}")
    for name, known in _known(n):
        if np.array_equal(order, known):
            return name
    return f"explicit order {order.tolist()}"


def _known(n: int) -> list[tuple[str, np.ndarray]]:
    """Named orders of n elements, the plainest name of each first."""
    index = np.arange(n)
    named = [(f"lane-major, the natural order ({LANES} lanes of {n // LANES})" if n % LANES == 0 else "natural", index)]
    if n % LANES == 0:
        named.append((f"strided ({LANES} lanes, stride {LANES})", lane_permutation("strided", n)))
    if n & (n - 1) == 0:
        bits = lane_permutation("bit-reversed", n)
        sequency = row_order(n, "sequency")
        named += [("bit-reversed", bits), ("sequency", sequency), ("inverse of sequency", np.argsort(sequency))]
    named += [("reversed", index[::-1]), ("halves swapped", np.roll(index, n // 2))]
    if n % 2 == 0:
        named.append(("neighbours swapped", index ^ 1))
    for lanes in range(2, n):
        if n % lanes == 0:
            named.append((f"strided ({lanes} lanes, stride {lanes})", index.reshape(-1, lanes).T.reshape(-1)))
    named += [(f"rotated by {shift}", np.roll(index, -shift)) for shift in range(1, n)]
    return named

"""Order of the elements inside a stored vector, as seen by the 32 lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsa_crosscheck.reference.hadamard import row_order

LANES = 32


def lane_permutation(order: str | np.ndarray, head_dim: int) -> np.ndarray:
    """Element stored at each place, int64 [head_dim]: ``stored = vector[..., permutation]``.

    With V = head_dim / 32 elements a lane: ``lane-major`` lane l stores elements V*l .. V*l+V-1 (the
    natural order), ``strided`` lane l stores l, l+32, l+64, ...; ``bit-reversed`` stores element
    reverse_bits(i) at place i, ``sequency`` the element whose Walsh function has i sign changes. An
    integer array [head_dim] is an order of its own. Scores do not change when key and query share one.
    ``ValueError`` for another name, a strided head_dim that 32 lanes do not divide, or an array that
    does not hold each of 0 .. head_dim - 1 once.
    """
    if isinstance(order, np.ndarray):
        if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(head_dim)):
            raise ValueError(
                f"`lane_permutation(order=...)` should hold each of 0 to {head_dim - 1} once, got {order.tolist()}"
            )
        return order.astype(np.int64)
    if order not in _ORDERS:
        raise ValueError(f"`lane_permutation(order=...)` should be one of {tuple(_ORDERS)}, got {order!r}")
    return _ORDERS[order](head_dim)


def random_order(head_dim: int, seed: int) -> np.ndarray:
    """A permutation drawn from ``seed``, int64 [head_dim], for ``lane_permutation``."""
    return np.random.default_rng(seed).permutation(head_dim).astype(np.int64)


def _strided(head_dim: int) -> np.ndarray:
    if head_dim % LANES:
        raise ValueError(f"`lane_permutation(head_dim=...)` should be a multiple of {LANES}, got {head_dim}")
    return np.arange(head_dim, dtype=np.int64).reshape(-1, LANES).T.reshape(-1)


def _bit_reversed(head_dim: int) -> np.ndarray:
    index, out = np.arange(head_dim, dtype=np.int64), np.zeros(head_dim, np.int64)
    width = head_dim.bit_length() - 1
    for bit in range(width):
        out |= ((index >> bit) & 1) << (width - 1 - bit)
    return out


_ORDERS: dict[str, Callable[[int], np.ndarray]] = {
    "lane-major": lambda head_dim: np.arange(head_dim, dtype=np.int64),
    "strided": _strided,
    "bit-reversed": _bit_reversed,
    "sequency": lambda head_dim: row_order(head_dim, "sequency"),
}

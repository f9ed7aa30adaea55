"""Order of the elements inside a stored vector, as seen by the 32 lanes of a warp."""

from __future__ import annotations

import numpy as np

LANES = 32


def lane_permutation(order: str, head_dim: int) -> np.ndarray:
    """Element stored at each place, int64 [head_dim]: ``stored = vector[..., permutation]``.

    With V = head_dim / 32 elements a lane: ``lane-major`` lane l stores elements V*l .. V*l+V-1 (the
    natural order), ``strided`` lane l stores l, l+32, l+64, ..., ``bit-reversed`` stores element
    reverse_bits(i) at place i. Scores do not change when key and query share an order.
    ``ValueError`` for another order, or a strided head_dim that 32 lanes do not divide.
    """
    index = np.arange(head_dim, dtype=np.int64)
    if order == "lane-major":
        return index
    if order == "strided":
        if head_dim % LANES:
            raise ValueError(f"`lane_permutation(head_dim=...)` should be a multiple of {LANES}, got {head_dim}")
        return index.reshape(-1, LANES).T.reshape(-1)
    if order == "bit-reversed":
        width = head_dim.bit_length() - 1
        return sum(((index >> bit) & 1) << (width - 1 - bit) for bit in range(width)).astype(np.int64)  # type: ignore[union-attr]
    raise ValueError(
        f"`lane_permutation(order=...)` should be 'lane-major', 'strided' or 'bit-reversed', got {order!r}"
    )

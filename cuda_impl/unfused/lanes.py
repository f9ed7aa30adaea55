"""The order in which the lanes of a warp store a vector."""

from __future__ import annotations

import torch

WARP = 32


def to_stored_order(x: torch.Tensor, order: str) -> torch.Tensor:
    """Permutes the last axis of ``x`` [..., head_dim] from element order into stored order.

    ``lane-major``: lane l stores consecutive elements, which is the natural order. ``strided``: lane
    l stores elements l, l + 32, l + 64, ... one after another. ``bit-reversed``: place i stores the
    element whose index is i with its bits reversed, ``sequency`` the one whose Walsh function changes
    its sign i times. Raises ``ValueError`` when ``strided`` meets a head_dim that 32 lanes do not
    divide.
    """
    head_dim = x.shape[-1]
    if order == "strided":
        if head_dim % WARP:
            raise ValueError(
                f"`to_stored_order(x=...)` should have a multiple of {WARP} elements to be strided, got {head_dim}"
            )
        return x.unflatten(-1, (head_dim // WARP, WARP)).transpose(-1, -2).flatten(-2)
    if order == "sequency":
        # Walsh function i is the natural one at the reversed bits of i's Gray code.
        place = torch.arange(head_dim, device=x.device)
        return to_stored_order(x, "bit-reversed")[..., place ^ (place >> 1)]
    if order == "bit-reversed":
        bits = head_dim.bit_length() - 1
        # Reversing the bits of an index reverses the axes of the vector seen as 2 x 2 x ... x 2.
        cube = x.unflatten(-1, (2,) * bits) if bits > 1 else x
        lead = cube.ndim - max(bits, 1)
        return cube.permute(*range(lead), *reversed(range(lead, cube.ndim))).reshape(x.shape)
    return x

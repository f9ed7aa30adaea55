"""Sizes of an indexer: nothing here says how a number is computed."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Geometry:
    """Sizes of one sparse-attention indexer.

    All fields are positive integers. ``compress_ratio`` raw tokens make one index key
    (1 = one key a token, no pooling). Raises ``ValueError`` naming the field when a size is
    not a positive integer, when ``head_dim`` is not a power of two (the Hadamard transform
    needs one) or when ``rope_dim`` is odd or larger than ``head_dim``.
    """

    heads: int = 64
    head_dim: int = 128
    rope_dim: int = 64
    page_size: int = 64
    compress_ratio: int = 4
    topk: int = 512

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"`Geometry({field.name}=...)` should be a positive integer, got {value!r}")
        if self.head_dim & (self.head_dim - 1):
            raise ValueError(f"`Geometry(head_dim=...)` should be a power of two, got {self.head_dim}")
        if self.rope_dim % 2 or self.rope_dim > self.head_dim:
            raise ValueError(
                f"`Geometry(rope_dim=...)` should be even and at most head_dim={self.head_dim}, got {self.rope_dim}"
            )

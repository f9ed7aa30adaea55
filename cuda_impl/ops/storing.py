"""What the stores share: check every argument, then start the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_tensors
from dsa_crosscheck.cuda_impl.ops.placement import check_decode_rows, check_extend_rows, check_positive
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.variants import scale_arguments, variant_for
from dsa_crosscheck.reference.codec_spec import Codec


@dataclass(frozen=True)
class Target:
    """A kind of cache: what its rows are called and how long they are, and the size of its pages."""

    operand: str
    rows: str
    dim: int
    page_bytes: Callable[[Codec, int], int]
    extend: str
    decode: str


@dataclass(frozen=True)
class Store:
    """The arguments of a store that do not depend on its plan. ``function`` names it in errors."""

    function: str
    target: Target
    rows: torch.Tensor
    norm_weight: torch.Tensor
    rope_table: torch.Tensor
    cache: torch.Tensor
    codec: Codec
    page_size: int
    norm_eps: float

    def __post_init__(self) -> None:
        variant_for(self.function, self.target.operand, self.codec)
        check_positive(self.function, "page_size", self.page_size)
        if not isinstance(self.norm_eps, float) or not 0.0 < self.norm_eps < 1.0:
            raise ValueError(
                f"`{self.function}(norm_eps=...)` should be a float between 0 and 1, got {self.norm_eps!r}"
            )
        tensors: dict[str, tuple[torch.Tensor, torch.dtype, tuple[int | str, ...]]] = {
            self.target.rows: (self.rows, torch.float32, ("rows", self.target.dim)),
            "norm_weight": (self.norm_weight, torch.float32, (self.target.dim,)),
            "rope_table": (self.rope_table, torch.float32, ("positions", 64)),
            "cache": (self.cache, torch.uint8, ("pages", self.target.page_bytes(self.codec, self.page_size))),
        }
        check_tensors(self.function, **tensors)

    @property
    def slots(self) -> int:
        """Tokens that the cache holds."""
        return self.cache.shape[0] * self.page_size

    def extend(self, plan: torch.Tensor, out_loc: torch.Tensor, ratio: int) -> None:
        """Runs the kernel on an extend plan."""
        check_extend_rows(self.function, plan, out_loc, self.cache, ratio=ratio, **self._limits())
        self._run(self.target.extend, plan, out_loc, ratio)

    def decode(self, seq_lens: torch.Tensor, out_loc: torch.Tensor, ratio: int) -> None:
        """Runs the kernel on decode rows."""
        check_decode_rows(self.function, seq_lens, out_loc, self.cache, ratio=ratio, **self._limits())
        self._run(self.target.decode, seq_lens, out_loc, ratio)

    def _limits(self) -> dict[str, int]:
        return {"count": self.rows.shape[0], "positions": self.rope_table.shape[0], "slots": self.slots}

    def _run(self, export: str, plan: torch.Tensor, out_loc: torch.Tensor, ratio: int) -> None:
        variant = variant_for(self.function, self.target.operand, self.codec)
        kernels_for(self.cache.device)[export](
            self.rows,
            self.norm_weight,
            self.rope_table,
            plan,
            out_loc,
            self.cache,
            variant.export,
            *scale_arguments(self.codec),
            ratio,
            self.page_size,
            self.norm_eps,
        )

"""Candidates ``emulated``, ``cuda`` and ``cuda-mma``: the project's CUDA kernels, run on a CPU or on a GPU."""

from __future__ import annotations

from dataclasses import fields

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.cuda_impl.ops.pool import pool
from dsa_crosscheck.cuda_impl.ops.query import QUERY_POINTS, encode_query
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score import MMA_HEADS, paged_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import ALIGNMENT, score_kernel
from dsa_crosscheck.cuda_impl.ops.store import store_keys
from dsa_crosscheck.cuda_impl.ops.topk import topk as exact_topk
from dsa_crosscheck.cuda_impl.ops.variants import HEAD_DIM, variant_for
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.presets import PRESETS

DEFAULT = PRESETS["sglang-v4-fp8"].conventions

PARAMETERS = frozenset(
    {"key", "query", "norm_eps", "bf16_points", "rope_position", "causal", "query_scale_in", "topk_order"}
)
"""Fields the kernels take as arguments, or that reach them as positions and lengths."""


class Kernels:
    """The kernels under the fused production path's conventions, for every format they are built for.

    Raises ``Unsupported`` naming the first field that no kernel implements, or a codec without a
    kernel; ``BuildError`` when the kernels can't be built.
    """

    name: str
    device: str
    unit: str | None = None
    """What scores, as in ``paged_scores``."""

    def __init__(self, conventions: Conventions | None) -> None:
        self.conventions = conventions or DEFAULT
        try:
            _check_supported(self.name, self.conventions)
        except Unsupported as error:
            raise Unsupported(f"{error}; candidate 'unfused' follows any conventions") from error
        kernels_for(torch.device(self.device))

    def pool(self, kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
        """See ``Candidate``."""
        return pool(kv_score, position_bias)

    def store_keys(
        self,
        pooled: torch.Tensor,
        norm_weight: torch.Tensor,
        rope_table: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
    ) -> None:
        """See ``Candidate``."""
        store_keys(
            pooled,
            norm_weight,
            rope_table,
            positions,
            slots,
            cache,
            codec=self.conventions.key,
            page_size=self._page_size(cache),
            norm_eps=self.conventions.norm_eps,
        )

    def encode_query(
        self, query: torch.Tensor, gate: torch.Tensor, rope_table: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Candidate``."""
        points = self.conventions.bf16_points
        return encode_query(query, gate, rope_table, positions, codec=self.conventions.query, bf16_points=points)

    def score(
        self,
        codes: torch.Tensor,
        weights: torch.Tensor,
        cache: torch.Tensor,
        block_table: torch.Tensor,
        request_of_row: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """See ``Candidate``."""
        self._check_sizes(codes, cache)
        return paged_scores(
            codes,
            weights,
            cache,
            block_table,
            request_of_row,
            lengths,
            codec=self.conventions.key,
            page_size=self._page_size(cache),
            unit=self.unit,
        )

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        """See ``Candidate``."""
        return exact_topk(scores, lengths, topk)

    def _check_sizes(self, codes: torch.Tensor, cache: torch.Tensor) -> None:
        """``Unsupported`` for queries or pages that what scores does not take."""

    def _page_size(self, cache: torch.Tensor) -> int:
        return cache.shape[1] // self.conventions.key.record_bytes(HEAD_DIM)


class Emulated(Kernels):
    """The kernels' sources run on this CPU."""

    name = "emulated"
    device = "cpu"


class Cuda(Kernels):
    """The kernels built by nvcc for the GPU that is there; ``Unsupported`` without one."""

    name = "cuda"
    device = "cuda"

    def __init__(self, conventions: Conventions | None) -> None:
        if not torch.cuda.is_available():
            raise Unsupported(f"candidate {self.name!r} needs a CUDA GPU that torch can use, and found none")
        super().__init__(conventions)


class CudaMma(Cuda):
    """The same, scored by the instructions that every GPU's matrix unit has, even where the GPU has better ones."""

    name = "cuda-mma"
    unit = "mma"

    def _check_sizes(self, codes: torch.Tensor, cache: torch.Tensor) -> None:
        heads, page_bytes = codes.shape[1], cache.shape[1]
        if heads > MMA_HEADS:
            raise Unsupported(f"candidate {self.name!r} scores up to {MMA_HEADS} heads, got {heads}")
        if page_bytes % ALIGNMENT:
            raise Unsupported(
                f"candidate {self.name!r} reads pages of a multiple of {ALIGNMENT} bytes, got {page_bytes}"
            )


def _check_supported(name: str, c: Conventions) -> None:
    """The kernels implement one path; what they take as arguments may differ from it."""
    for field in fields(c):
        value, only = getattr(c, field.name), getattr(DEFAULT, field.name)
        if field.name not in PARAMETERS and value != only:
            raise Unsupported(f"candidate {name!r} implements only {field.name}={only!r}, got {value!r}")
    if not c.bf16_points <= QUERY_POINTS:
        raise Unsupported(
            f"candidate {name!r} rounds only at {sorted(QUERY_POINTS)}, got bf16_points={sorted(c.bf16_points)}"
        )
    if c.topk_order == "score":
        raise Unsupported(f"candidate {name!r} returns keys in index order, got topk_order='score'")
    if c.key.spec.bits != c.query.spec.bits:
        raise Unsupported(
            f"candidate {name!r} scores operands of one width, got key {c.key.format} and query {c.query.format}"
        )
    folded = c.query.spec.bits == 8 and c.query.scale_bytes > 0
    if c.query.scale_bytes and (c.query_scale_in == "weights") != folded:
        raise Unsupported(
            f"candidate {name!r} folds fp8 query scales into the weights and keeps fp4 scales beside the "
            f"codes, got query_scale_in={c.query_scale_in!r} for {c.query.format}"
        )
    try:
        variant_for("store_keys", "key", c.key)
        variant_for("encode_query", "query", c.query)
        score_kernel("paged_scores", c.key)
    except ValueError as error:
        raise Unsupported(str(error)) from error

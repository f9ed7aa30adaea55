"""Candidate ``unfused``: plain torch operations, as frameworks' fallbacks do it, for any conventions."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.unfused import pipeline
from dsa_crosscheck.cuda_impl.unfused.pool import pool
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.presets import PRESETS


class Unfused:
    """The torch path under any conventions; sizes are read off the tensors."""

    name = "unfused"

    def __init__(self, conventions: Conventions | None) -> None:
        self.conventions = conventions or PRESETS["sglang-v4-fp8"].conventions

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
        geometry = self._geometry(cache, head_dim=pooled.shape[1], rope_dim=rope_table.shape[1])
        pipeline.store_keys(
            pooled,
            norm_weight,
            rope_table,
            positions,
            slots,
            cache,
            conventions=self.conventions,
            geometry=geometry,
        )

    def encode_query(
        self, query: torch.Tensor, gate: torch.Tensor, rope_table: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Candidate``."""
        return pipeline.encode_query(query, gate, rope_table, positions, conventions=self.conventions)

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
        geometry = self._geometry(cache, head_dim=head_dim_of(codes.shape[2], self.conventions))
        return pipeline.score(
            codes,
            weights,
            cache,
            block_table,
            request_of_row,
            lengths,
            conventions=self.conventions,
            geometry=geometry,
        )

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        """See ``Candidate``."""
        return pipeline.select(scores, lengths, topk, conventions=self.conventions)

    def _geometry(self, cache: torch.Tensor, head_dim: int, rope_dim: int = 2) -> Geometry:
        page_size = cache.shape[1] // self.conventions.key.record_bytes(head_dim)
        return Geometry(head_dim=head_dim, rope_dim=rope_dim, page_size=page_size)


def head_dim_of(query_bytes: int, conventions: Conventions) -> int:
    """Elements of a query record of ``query_bytes`` bytes: the power of two whose record has that size."""
    codec, with_scales = conventions.query, conventions.query_scale_in == "record"
    for head_dim in (2**n for n in range(13)):
        if query_bytes == (codec.record_bytes(head_dim) if with_scales else codec.value_bytes(head_dim)):
            return head_dim
    raise ValueError(f"`codes` should hold records of {codec.format}, got {query_bytes} bytes a head")

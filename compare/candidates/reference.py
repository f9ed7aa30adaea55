"""The reference itself as a candidate, under any conventions: what mutants and diagnosis are made of."""

from __future__ import annotations

import numpy as np
import torch

from dsa_crosscheck.compare.candidates.unfused import head_dim_of
from dsa_crosscheck.reference.cache import key_layout, write_records
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.key_source import CachedKeys
from dsa_crosscheck.reference.keys import rotate_keys
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import quantise
from dsa_crosscheck.reference.query import encode_query, query_values, rotate_query
from dsa_crosscheck.reference.record import pack_record
from dsa_crosscheck.reference.score import score
from dsa_crosscheck.reference.select import select
from dsa_crosscheck.reference.trace import Trace


class ReferenceCandidate:
    """Every stage by the float64 reference, results rounded to float32.

    Two fields act outside the stages' arguments and show only in ``run``: ``rope_position`` (the
    caller passes positions) and ``causal`` (the caller passes lengths).
    """

    name = "reference"

    def __init__(self, conventions: Conventions | None) -> None:
        self.conventions = conventions or PRESETS["sglang-v4-fp8"].conventions

    def pool(self, kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
        """See ``Candidate``."""
        return _float32(pool(kv_score.numpy(), position_bias.numpy()))

    def store_keys(
        self,
        pooled: torch.Tensor,
        norm_weight: torch.Tensor,
        rope_table: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
    ) -> None:
        """See ``Candidate``. Under RMSNorm a bias is ignored; under LayerNorm a missing one is zero."""
        weight = norm_weight.numpy()
        weight, bias = weight if weight.ndim == 2 else (weight, np.zeros_like(weight))
        c = self.conventions
        keys = rotate_keys(pooled.numpy(), weight, bias, rope_table.numpy(), positions.numpy(), c)
        record = c.key.record_bytes(pooled.shape[1])
        geometry = Geometry(head_dim=pooled.shape[1], rope_dim=rope_table.shape[1], page_size=cache.shape[1] // record)
        layout = key_layout(c.key, geometry, c.page_order)
        write_records(cache.numpy(), layout, pack_record(quantise(keys.rotated, c.key), c.key), slots.numpy())

    def encode_query(
        self, query: torch.Tensor, gate: torch.Tensor, rope_table: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``Candidate``."""
        stages = rotate_query(query.numpy(), rope_table.numpy(), positions.numpy(), self.conventions)
        codes, weights = encode_query(stages.rotated, gate.numpy(), self.conventions)
        return torch.from_numpy(np.ascontiguousarray(codes)), _float32(weights)

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
        c = self.conventions
        head_dim = head_dim_of(codes.shape[2], c)
        page_size = cache.shape[1] // c.key.record_bytes(head_dim)
        layout = key_layout(c.key, Geometry(head_dim=head_dim, rope_dim=2, page_size=page_size), c.page_order)
        keys = CachedKeys(cache.numpy(), layout, c.key, block_table.numpy(), head_dim)
        scores = score(
            query_values(codes.numpy(), c, head_dim),
            weights.numpy().astype(np.float64),
            keys,
            request_of_row.numpy(),
            lengths.numpy(),
            relu=c.relu,
            rounding=c.score_rounding,
        )
        return _float32(scores.values)

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        """See ``Candidate``."""
        return torch.from_numpy(select(scores.numpy(), lengths.numpy(), topk, self.conventions))


class FusedReference:
    """The reference as a fused implementation: only ``run``, so that every convention acts."""

    name = "reference (fused)"

    def __init__(self, conventions: Conventions | None) -> None:
        self.conventions = conventions or PRESETS["sglang-v4-fp8"].conventions

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """See ``Candidate``."""
        return {"selection": torch.from_numpy(Trace(inputs, self.conventions).selection)}


def _float32(values: np.ndarray) -> torch.Tensor:
    with np.errstate(over="ignore"):  # what is past float32 is an infinity there
        return torch.from_numpy(values.astype(np.float32))

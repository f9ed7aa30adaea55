"""The published indexer from hidden states, with nothing inside it replaced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from dsa_crosscheck.compare.candidates.transformers_indexer import (
    build_indexer,
    indexer_config,
    new_cache,
    observed,
    own_rope_table,
    padded,
)
from dsa_crosscheck.fixtures.batch import plan_batch
from dsa_crosscheck.fixtures.projections import Projections
from dsa_crosscheck.fixtures.rope_table import Yarn
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import preset

_CHUNK_TOKENS = 512


@dataclass(frozen=True)
class HiddenRun:
    """What one run from hidden states saw.

    ``inputs``: what the module's own projections and rotary embedding gave, as the reference takes it;
    its rows are the kept ones. ``observed``: ``pooled``, ``normed``, ``keys`` [K, head_dim], and for the
    same rows ``query`` [R, heads, head_dim] after RoPE, ``scores`` [R, K] before the causal mask (-inf for
    keys that the row's chunk did not have yet) and ``selection`` int32 [R, topk].
    """

    inputs: Inputs
    observed: dict[str, torch.Tensor]


def run_hidden(
    hidden: np.ndarray, weights: Projections, positions: np.ndarray, geometry: Geometry, yarn: Yarn | None = None
) -> HiddenRun:
    """Run ``DeepseekV4Indexer`` on one request's hidden states and keep the rows at ``positions``.

    ``hidden`` float32 [tokens, hidden]; ``positions`` int64 [R]. The queries' low-rank input is the hidden
    state itself. Every token is scored, in chunks that go through the library's own cache. ``yarn`` sets
    the module's rotary embedding. ``ImportError`` without transformers; ``ValueError`` when a position is
    not below the number of tokens.
    """
    tokens, dim = hidden.shape[0], geometry.head_dim
    if positions.size and not 0 <= positions.min() <= positions.max() < tokens:
        raise ValueError(f"`run_hidden(positions=...)` should be in [0, {tokens}), got {positions}")
    config = indexer_config(geometry, hidden.shape[1], preset("transformers-v4").conventions.norm_eps, yarn)
    indexer = build_indexer(config)
    _load(indexer, weights)
    batch = plan_batch((tokens,), [(0, int(p)) for p in positions], geometry, seed=0)
    place = torch.from_numpy(batch.query_positions)
    rows = len(place)
    kept = {
        "raw_query": torch.empty(rows, geometry.heads * dim),
        "raw_gate": torch.empty(rows, geometry.heads),
        "query": torch.empty(rows, geometry.heads, dim),
        "scores": torch.full((rows, tokens // geometry.compress_ratio), -torch.inf),
        "selection": torch.empty(rows, geometry.topk, dtype=torch.int32),
    }
    states, cache = torch.from_numpy(hidden)[None], new_cache(config)
    with observed(indexer) as seen:
        for start in range(0, tokens, _CHUNK_TOKENS):
            chunk = states[:, start : start + _CHUNK_TOKENS]
            chosen = indexer(chunk, chunk, torch.arange(start, start + chunk.shape[1])[None], cache, 0)
            row = torch.nonzero((place >= start) & (place < start + chunk.shape[1]))[:, 0]
            at = place[row] - start
            for name in ("raw_query", "raw_gate", "query"):
                kept[name][row] = seen.last(name)[0, at]
            scores = seen.last("scores")[0, at]
            kept["scores"][row, : scores.shape[1]] = scores
            kept["selection"][row] = padded(chosen[0, at], geometry.topk)
    raw_query, raw_gate = kept.pop("raw_query"), kept.pop("raw_gate")
    kept |= {"pooled": seen.joined("pooled", dim), "normed": seen.joined("normed", dim), "keys": seen.last("keys")[0]}
    inputs = Inputs(
        geometry=geometry,
        pages=batch.pages,
        pooled=kept["pooled"].numpy(),
        norm_weight=weights.norm_weight,
        norm_bias=np.zeros(dim, dtype=np.float32),
        rope_table=own_rope_table(indexer, tokens),
        key_index=batch.key_index,
        key_request=batch.key_request,
        slots=batch.slots,
        query=raw_query.reshape(rows, geometry.heads, dim).numpy(),
        gate=raw_gate.numpy(),
        query_positions=batch.query_positions,
        block_table=batch.block_table,
        request_of_row=batch.request_of_row,
        key_counts=batch.key_counts,
        kv_score=torch.cat([seen.joined("kv", 2 * dim), seen.joined("gate_scores", 2 * dim)], dim=1).numpy(),
        position_bias=weights.position_bias,
    )
    return HiddenRun(inputs, kept)


def _load(indexer: torch.nn.Module, weights: Projections) -> None:
    """Set every parameter; ``RuntimeError`` from torch if one is missing or has another shape."""
    values, scores = np.split(weights.kv_score, 2)
    parameters = {
        "kv_proj.weight": values,
        "gate_proj.weight": scores,
        "q_b_proj.weight": weights.query,
        "scorer.weights_proj.weight": weights.gate,
        "position_bias": weights.position_bias,
        "kv_norm.weight": weights.norm_weight,
    }
    indexer.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()}, strict=True)

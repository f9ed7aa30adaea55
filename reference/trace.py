"""The whole indexer on one set of inputs, every stage by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dsa_crosscheck.reference.cache import key_layout, write_records
from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.key_source import CachedKeys, ExactKeys, KeySource
from dsa_crosscheck.reference.keys import KeyStages, encode_keys, key_positions, rotate_keys
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.quantise import Quantised
from dsa_crosscheck.reference.query import QueryStages, encode_query, query_values, rotate_query
from dsa_crosscheck.reference.score import Scores, score
from dsa_crosscheck.reference.select import select


@dataclass(frozen=True)
class Trace:
    """Every stage's output; shapes as in the stage that makes it. ``pooled_stretch`` is the pooling
    of ``Inputs.kv_score`` (None without one); ``lengths`` are visible keys per row."""

    pooled_stretch: np.ndarray | None
    keys: KeyStages
    stored: Quantised
    records: np.ndarray
    cache: np.ndarray
    query: QueryStages
    codes: np.ndarray
    weights: np.ndarray
    lengths: np.ndarray
    scores: Scores
    selection: np.ndarray


def trace(inputs: Inputs, conventions: Conventions) -> Trace:
    """Run every stage in float64 under ``conventions``; unwritten cache bytes are zero."""
    keys = key_stages(inputs, conventions)
    stored, records = encode_keys(keys.rotated, conventions)
    layout = key_layout(conventions.key, inputs.geometry, conventions.page_order)
    cache = np.zeros((inputs.pages, layout.page_bytes), np.uint8)
    write_records(cache, layout, records, inputs.slots)
    query = rotate_query(inputs.query, inputs.rope_table, inputs.query_positions, conventions)
    codes, weights = encode_query(query.rotated, inputs.gate, conventions)
    scores = score_cache(inputs, cache, codes, weights, conventions)
    lengths = row_lengths(inputs, conventions.causal)
    pooled_stretch = None
    if inputs.kv_score is not None and inputs.position_bias is not None:
        pooled_stretch = pool(inputs.kv_score, inputs.position_bias)
    return Trace(
        pooled_stretch,
        keys,
        stored,
        records,
        cache,
        query,
        codes,
        weights,
        lengths,
        scores,
        select(scores.values, lengths, inputs.geometry.topk, conventions),
    )


def key_stages(inputs: Inputs, conventions: Conventions) -> KeyStages:
    """The key path of ``inputs`` up to, and without, quantisation."""
    positions = key_positions(inputs.key_index, inputs.geometry, conventions.rope_position)
    return rotate_keys(
        inputs.pooled, inputs.norm_weight, inputs.norm_bias, inputs.rope_table, positions, conventions
    )


def score_cache(
    inputs: Inputs, cache: np.ndarray, codes: np.ndarray, weights: np.ndarray, conventions: Conventions
) -> Scores:
    """Scores of given cache bytes, query codes and head weights, whoever made them."""
    layout = key_layout(conventions.key, inputs.geometry, conventions.page_order)
    head_dim = inputs.geometry.head_dim
    keys = CachedKeys(cache, layout, conventions.key, inputs.block_table, head_dim)
    return _score(inputs, query_values(codes, conventions, head_dim), weights, keys, conventions)


def exact_scores(inputs: Inputs, conventions: Conventions) -> Scores:
    """Scores with no rounding anywhere: what the formats of ``conventions`` are measured against."""
    ideal = without_rounding(conventions)
    keys = ExactKeys(key_stages(inputs, ideal).rotated, inputs.key_request, inputs.key_index)
    query = rotate_query(inputs.query, inputs.rope_table, inputs.query_positions, ideal).rotated
    _, weights = encode_query(query, inputs.gate, ideal)
    return _score(inputs, query, weights, keys, ideal)


def without_rounding(conventions: Conventions) -> Conventions:
    """The same mathematics with no quantiser, bf16 point or score rounding."""
    exact = Codec("exact")
    return replace(
        conventions,
        key=exact,
        query=exact,
        query_scale_in=None,
        bf16_points=frozenset(),
        weight_dtype="fp32",
        score_rounding="none",
    )


def _score(
    inputs: Inputs, query: np.ndarray, weights: np.ndarray, keys: KeySource, conventions: Conventions
) -> Scores:
    return score(
        query,
        weights,
        keys,
        inputs.request_of_row,
        row_lengths(inputs, conventions.causal),
        relu=conventions.relu,
        rounding=conventions.score_rounding,
    )

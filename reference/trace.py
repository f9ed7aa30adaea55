"""The whole indexer on one set of inputs, every stage by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_crosscheck.reference.cache import key_layout, write_records
from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.key_source import CachedKeys, ExactKeys, KeySource
from dsa_crosscheck.reference.keys import KeyStages, key_positions, rotate_keys
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.quantise import Quantised, quantise
from dsa_crosscheck.reference.query import QueryStages, encode_query, query_values, rotate_query
from dsa_crosscheck.reference.record import pack_record
from dsa_crosscheck.reference.score import Scores, score
from dsa_crosscheck.reference.select import select

STAGES = (
    "pooled_stretch",
    "keys",
    "stored",
    "records",
    "cache",
    "query",
    "codes",
    "weights",
    "lengths",
    "scores",
    "selection",
)
"""Stages of a trace in the order of the data's path."""


@dataclass(frozen=True)
class Trace:
    """Every stage of ``inputs`` under ``conventions``, in float64, each computed when first asked for."""

    inputs: Inputs
    conventions: Conventions

    @cached_property
    def pooled_stretch(self) -> np.ndarray | None:
        """The pooling of ``Inputs.kv_score``, float64; None without one."""
        if self.inputs.kv_score is None or self.inputs.position_bias is None:
            return None
        return pool(self.inputs.kv_score, self.inputs.position_bias)

    @cached_property
    def keys(self) -> KeyStages:
        """The key path up to, and without, quantisation."""
        return key_stages(self.inputs, self.conventions)

    @cached_property
    def stored(self) -> Quantised:
        """Codes and scales of every key."""
        return quantise(self.keys.rotated, self.conventions.key)

    @cached_property
    def records(self) -> np.ndarray:
        """Bytes of every key, uint8 [keys, record_bytes]."""
        return pack_record(self.stored, self.conventions.key)

    @cached_property
    def cache(self) -> np.ndarray:
        """The paged cache, uint8 [pages, page_bytes]; bytes of no key are zero."""
        layout = key_layout(self.conventions.key, self.inputs.geometry, self.conventions.page_order)
        cache = np.zeros((self.inputs.pages, layout.page_bytes), np.uint8)
        write_records(cache, layout, self.records, self.inputs.slots)
        return cache

    @cached_property
    def query(self) -> QueryStages:
        """The query path up to, and without, quantisation."""
        i = self.inputs
        return rotate_query(i.query, i.rope_table, i.query_positions, self.conventions)

    @cached_property
    def _encoded(self) -> tuple[np.ndarray, np.ndarray]:
        return encode_query(self.query.rotated, self.inputs.gate, self.conventions)

    @property
    def codes(self) -> np.ndarray:
        """Query codes, uint8 [rows, heads, bytes]."""
        return self._encoded[0]

    @property
    def weights(self) -> np.ndarray:
        """Head weights, float64 [rows, heads]."""
        return self._encoded[1]

    @cached_property
    def lengths(self) -> np.ndarray:
        """Visible keys of every row, int32 [rows]."""
        return row_lengths(self.inputs, self.conventions.causal)

    @cached_property
    def scores(self) -> Scores:
        """Scores of the cache's bytes."""
        return score_cache(self.inputs, self.cache, self.codes, self.weights, self.conventions)

    @cached_property
    def selection(self) -> np.ndarray:
        """Selected keys, int32 [rows, topk]."""
        return select(self.scores.values, self.lengths, self.inputs.geometry.topk, self.conventions)


def key_stages(inputs: Inputs, conventions: Conventions) -> KeyStages:
    """The key path of ``inputs`` up to, and without, quantisation."""
    positions = key_positions(inputs.key_index, inputs.geometry, conventions.rope_position)
    return rotate_keys(inputs.pooled, inputs.norm_weight, inputs.norm_bias, inputs.rope_table, positions, conventions)


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


def _score(inputs: Inputs, query: np.ndarray, weights: np.ndarray, keys: KeySource, conventions: Conventions) -> Scores:
    return score(
        query,
        weights,
        keys,
        inputs.request_of_row,
        row_lengths(inputs, conventions.causal),
        relu=conventions.relu,
        rounding=conventions.score_rounding,
    )

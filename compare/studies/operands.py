"""What the scorer multiplies: keys and queries of one problem, exact or as a format stores them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.keys import key_positions, rotate_keys
from dsa_crosscheck.reference.quantise import Quantised, code_values, dequantise, encode, quantise
from dsa_crosscheck.reference.query import head_weights, rotate_query

KEY_CHUNK = 16384
"""Keys rotated at a time: the stages between hold seven float64 copies of a chunk."""

Encoding = Callable[[np.ndarray], np.ndarray]
"""Vectors [..., head_dim] to the values that are left of them after storage, float64."""


@dataclass(frozen=True)
class ArrayKeys:
    """A ``KeySource`` over ``values`` [keys, head_dim], one request after another from ``starts``.

    ``encoding`` is applied to the few keys that are asked for, so that no second copy of all exists.
    """

    values: np.ndarray
    starts: np.ndarray
    encoding: Encoding

    def block(self, request: int, start: int, stop: int) -> np.ndarray:
        """Keys start..stop-1 of ``request`` after storage."""
        first = int(self.starts[request])
        return self.encoding(self.values[first + start : first + stop])


@dataclass(frozen=True)
class Operands:
    """Rotated vectors of ``inputs`` under unrounded ``conventions``."""

    inputs: Inputs
    conventions: Conventions

    @cached_property
    def keys(self) -> np.ndarray:
        """Rotated keys, float64 [keys, head_dim], ordered by request and index."""
        i = self.inputs
        order = np.lexsort((i.key_index, i.key_request))
        positions = key_positions(i.key_index, i.geometry, self.conventions.rope_position)
        rotated = np.empty(i.pooled.shape)
        for start in range(0, order.size, KEY_CHUNK):
            some = order[start : start + KEY_CHUNK]
            stages = rotate_keys(
                i.pooled[some], i.norm_weight, i.norm_bias, i.rope_table, positions[some], self.conventions
            )
            rotated[start : start + some.size] = stages.rotated
        return rotated

    @cached_property
    def starts(self) -> np.ndarray:
        """Place of each request's first key in ``keys``, int64 [requests]."""
        return np.searchsorted(np.sort(self.inputs.key_request), np.arange(self.inputs.key_counts.size))

    @cached_property
    def query(self) -> np.ndarray:
        """Rotated queries, float64 [rows, heads, head_dim]."""
        i = self.inputs
        return rotate_query(i.query, i.rope_table, i.query_positions, self.conventions).rotated

    @cached_property
    def weights(self) -> np.ndarray:
        """Head weights, float64 [rows, heads]; a format's query scale stays with the query."""
        none = Quantised(np.zeros(0, np.uint8), np.zeros(0, np.float32))
        return head_weights(self.inputs.gate, self.inputs.geometry.head_dim, none, self.conventions)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Visible keys of every row, int32 [rows]."""
        return row_lengths(self.inputs, self.conventions.causal)

    def source(self, encoding: Encoding) -> ArrayKeys:
        """The keys as ``encoding`` leaves them."""
        return ArrayKeys(self.keys, self.starts, encoding)


def exact(values: np.ndarray) -> np.ndarray:
    """Nothing is lost."""
    return values


def stored(codec: Codec) -> Encoding:
    """Bfloat16, then ``codec`` with its own scales."""
    if codec.format == "exact":
        return exact
    return lambda values: dequantise(quantise(round_bf16(values), codec), codec)


def ideally_scaled(codec: Codec) -> Encoding:
    """Bfloat16, then ``codec``'s codes under a scale that is the real number amax / largest code.

    What is left is the loss of the codes alone: such a scale is neither rounded, nor a power of two,
    nor kept from zero by a floor. A group of zeros stays zero.
    """
    if not codec.scale_bytes:
        return stored(codec)

    def encoding(values: np.ndarray) -> np.ndarray:
        values = round_bf16(values)
        grouped = values.reshape(*values.shape[:-1], codec.groups(values.shape[-1]), -1)
        scale = np.abs(grouped).max(axis=-1, keepdims=True) / codec.spec.max_value
        ratio = (grouped / np.where(scale > 0, scale, 1.0)).astype(np.float32)
        decoded = code_values(encode(ratio, codec.spec, codec.ties or "even"), codec.spec)
        return (decoded * scale).reshape(values.shape)

    return encoding


def at_rows(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """``inputs`` with the query rows ``rows`` only."""
    return replace(
        inputs,
        query=inputs.query[rows],
        gate=inputs.gate[rows],
        query_positions=inputs.query_positions[rows],
        request_of_row=inputs.request_of_row[rows],
    )

"""Needles: keys that answer a query more or less, put in the place of ordinary ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.studies.operands import ArrayKeys, Encoding, Operands
from dsa_crosscheck.reference.keys import key_positions, rotate_keys
from dsa_crosscheck.reference.score import score

BISECTIONS = 18
"""Steps that narrow a strength from [0, 1] to 4e-6 of it: a hundredth of bf16's noise in the scores."""


@dataclass(frozen=True)
class Needles:
    """Needles of every row, each planted alone.

    ``places`` [rows, needles]: index of the key that a needle replaces. ``keys`` [rows * needles,
    head_dim]: rotated, float64, row by row.
    """

    operands: Operands
    places: np.ndarray
    keys: np.ndarray

    def columns(self, start: int, stop: int) -> Needles:
        """Needles ``start`` to ``stop - 1`` of every row."""
        rows, count = self.places.shape
        keys = self.keys.reshape(rows, count, -1)[:, start:stop].reshape(rows * (stop - start), -1)
        return Needles(self.operands, self.places[:, start:stop], keys)

    def scores(self, encoding: Encoding) -> np.ndarray:
        """Each needle's score under its own row's query, both as ``encoding`` leaves them, [rows, needles]."""
        rows, count = self.places.shape
        one = self.operands
        # Each row is a request of its own here, whose keys are its needles.
        source = ArrayKeys(self.keys, np.arange(rows) * count, encoding)
        lengths = np.full(rows, count)
        query = encoding(one.query)
        return score(
            query, one.weights, source, np.arange(rows), lengths, relu=one.conventions.relu, rounding="none"
        ).values


def directions(operands: Operands) -> np.ndarray:
    """For each row, the pooled direction that answers its query best to first order, unit, [rows, head_dim].

    The gate-weighted sum of the row's heads, on the channels without rotary embedding: so the answer does
    not depend on where it stands. Divided by the norm weight, which the key path will apply.
    """
    i = operands.inputs
    free = i.geometry.head_dim - i.geometry.rope_dim
    wanted = np.einsum("rh,rhd->rd", i.gate.astype(np.float64), i.query[..., :free].astype(np.float64))
    wanted = wanted / i.norm_weight[:free]
    out = np.zeros((wanted.shape[0], i.geometry.head_dim))
    out[:, :free] = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    return out


def plant(operands: Operands, depths: np.ndarray, strengths: np.ndarray) -> Needles:
    """Needles at ``depths`` [rows, needles] in [0, 1] with ``strengths`` [rows, needles] in [0, 1].

    Depth 0 is the row's oldest key, 1 the newest that it sees. A needle is the replaced key, brought to
    root mean square 1, turned towards the row's direction: strength 0 leaves it, 1 is the direction
    alone. ``ValueError`` for a row without keys, or a number outside [0, 1].
    """
    for name, values in (("depths", depths), ("strengths", strengths)):
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(f"`plant({name}=...)` should be in [0, 1], got {values.min()} to {values.max()}")
    i, c = operands.inputs, operands.conventions
    lengths = operands.lengths
    if lengths.min(initial=1) < 1:
        raise ValueError("`plant(operands=...)` should have rows that see a key, got a row of length 0")
    dim = i.geometry.head_dim
    places = np.rint(depths * (lengths[:, None] - 1)).astype(np.int64)
    at = _position_of(operands, places)
    old = i.pooled[at].astype(np.float64)
    old /= np.sqrt((old**2).mean(axis=-1, keepdims=True))
    new = directions(operands)[:, None, :] * np.sqrt(dim)
    pooled = np.sqrt(1 - strengths**2)[..., None] * old + strengths[..., None] * new
    positions = key_positions(places, i.geometry, c.rope_position).reshape(-1)
    stages = rotate_keys(pooled.reshape(-1, dim), i.norm_weight, i.norm_bias, i.rope_table, positions, c)
    return Needles(operands, places, stages.rotated)


def _position_of(operands: Operands, places: np.ndarray) -> np.ndarray:
    """Where in ``Inputs.pooled`` the keys at ``places`` of each row's request are."""
    i = operands.inputs
    order = np.lexsort((i.key_index, i.key_request))
    return order[operands.starts[i.request_of_row][:, None] + places]


def plant_at_score(operands: Operands, depths: np.ndarray, wanted: np.ndarray, exact: Encoding) -> Needles:
    """Needles whose exact score is close to ``wanted`` [rows, needles], by bisection on the strength.

    A score that strength 0 already passes, or that 1 does not reach, gets that strength: callers look
    at the scores that came out.
    """
    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = plant(operands, depths, middle).scores(exact) > wanted
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return plant(operands, depths, (low + high) / 2)

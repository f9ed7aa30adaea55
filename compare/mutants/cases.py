"""The inputs that reveal each mutant: small, and as ordinary as the mutant allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from dsa_crosscheck.fixtures.cases import CASES, build_case
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs

KEYS = 512
ROWS = 8
TOPK = 48
PLATEAU_TOPK = 128
DEFAULT = "gaussian"

NAN_SCORES = "nan-scores"
"""Not inputs but scores: no finite inputs give a NaN score in every format."""

REVEALED_BY: dict[str, str] = {
    "norm_eps": "small-keys",
    "key.amax_floor": "floors",
    "key.floor_on": "floors",
    "query.amax_floor": "floors",
    "query.floor_on": "floors",
    "rope_position": "one-head",
    "score_rounding": "exact-integers",
    "topk_ties": "plateau",
    "topk_nan": NAN_SCORES,
    "store-negative-slot": "padded",
    "store-neighbour-scale": "spread",
    "store-scales-next-page": "spread",
    "query-scale-not-folded": "spread",
    "score-neighbour-scale": "spread",
    "score-scale-missing": "spread",
    "score-bf16": "exact-integers",
    "score-fp16": "exact-integers",
    "select-ties-dropped": "plateau",
}
"""Case of a flipped field or of a fault; every other mutant shows in ``DEFAULT``."""


@cache
def mutant_inputs(case: str, geometry: Geometry) -> Inputs:
    """``KEYS`` keys and ``ROWS`` rows of a generated case or of one made here, for an indexer's sizes.

    ``ValueError`` for an unknown name.
    """
    if case in _SPECIAL:
        return _SPECIAL[case](mutant_inputs(DEFAULT, geometry))
    if case not in CASES:
        raise ValueError(f"`mutant_inputs(case=...)` should be one of {(*CASES, *_SPECIAL)}, got {case!r}")
    topk = PLATEAU_TOPK if case == "plateau" else TOPK
    return build_case(case, context=KEYS * geometry.compress_ratio, rows=ROWS, topk=topk, geometry=geometry)


def _small_keys(inputs: Inputs) -> Inputs:
    """Keys whose mean square is no larger than the norm's epsilon."""
    return replace(inputs, pooled=inputs.pooled * np.float32(1e-3))


def _floors(inputs: Inputs) -> Inputs:
    """Zero and nearly zero keys and queries, down to sizes below every amax floor."""
    pooled, query = inputs.pooled.copy(), inputs.query.copy()
    pooled *= np.geomspace(1e-14, 1e-3, inputs.keys, dtype=np.float32)[:, None]
    pooled[::3] = 0
    query *= np.geomspace(1e-14, 1e-3, query.shape[1], dtype=np.float32)[:, None]
    query[:, ::3] = 0
    small = np.float32(1e-6)
    weight, bias = inputs.norm_weight * small, inputs.norm_bias * small
    return replace(inputs, pooled=pooled, query=query, norm_weight=weight, norm_bias=bias)


def _padded(inputs: Inputs) -> Inputs:
    """The newest keys of the longest request have no slot and are not visible."""
    longest = int(inputs.key_counts.argmax())
    counts, slots = inputs.key_counts.copy(), inputs.slots.copy()
    counts[longest] -= 5
    slots[(inputs.key_request == longest) & (inputs.key_index >= counts[longest])] = -1
    return replace(inputs, key_counts=counts, slots=slots)


def _one_head(inputs: Inputs) -> Inputs:
    """Every row has one head with a gate, so that heads cannot cancel and a selection says most."""
    gate = np.zeros_like(inputs.gate)
    gate[np.arange(inputs.rows), np.arange(inputs.rows) % gate.shape[1]] = 1.0
    return replace(inputs, gate=gate)


def nan_scores(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Float32 scores with NaN of both signs and both infinities in every row that has room for them."""
    out = scores.astype(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf], np.float32)
    for row in np.flatnonzero(lengths >= 2 * special.size):
        out[row, : 2 * special.size : 2] = special
    return out


_SPECIAL: dict[str, Callable[[Inputs], Inputs]] = {
    "small-keys": _small_keys,
    "floors": _floors,
    "padded": _padded,
    "one-head": _one_head,
}

"""The key path: pooled -> normed -> roped -> rotated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.hadamard import hadamard
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.norm import norm
from dsa_crosscheck.reference.rope import rope


@dataclass(frozen=True)
class KeyStages:
    """Float64 [keys, head_dim] after each stage; ``rotated`` is in stored (lane) order.

    ``unrounded_*``: the same before the stage's bfloat16 point, which is what an error bound of the
    stage is about; the very same array where the conventions round nothing.
    """

    pooled: np.ndarray
    normed: np.ndarray
    roped: np.ndarray
    rotated: np.ndarray
    unrounded_normed: np.ndarray
    unrounded_roped: np.ndarray
    unrounded_rotated: np.ndarray


def key_positions(key_index: np.ndarray, geometry: Geometry, rule: str) -> np.ndarray:
    """Raw RoPE position of each key: its group's first or last token. ``ValueError`` otherwise."""
    if rule == "group-first":
        return key_index * geometry.compress_ratio
    if rule == "group-last":
        return (key_index + 1) * geometry.compress_ratio - 1
    raise ValueError(f"`key_positions(rule=...)` should be 'group-first' or 'group-last', got {rule!r}")


def rotate_keys(
    pooled: np.ndarray,
    norm_weight: np.ndarray,
    norm_bias: np.ndarray,
    rope_table: np.ndarray,
    positions: np.ndarray,
    conventions: Conventions,
) -> KeyStages:
    """Every stage of ``pooled`` [keys, head_dim] at raw ``positions`` [keys], in float64.

    Outputs named in ``conventions.bf16_points`` are rounded to bfloat16 where they arise.
    """
    c = conventions
    pooled = _point("pooled", np.asarray(pooled, np.float64), c)
    raw_normed = norm(pooled, norm_weight, norm_bias, kind=c.norm, eps=c.norm_eps)
    normed = _point("normed", raw_normed, c)
    raw_roped = rope(normed, rope_table, positions, pairing=c.rope_pairing, dims=c.rope_dims)
    roped = _point("key-roped", raw_roped, c)
    raw_rotated = roped
    if c.hadamard_key:
        assert c.hadamard_order is not None
        assert c.hadamard_scale is not None
        raw_rotated = hadamard(roped, order=c.hadamard_order, scale=c.hadamard_scale)
    raw_rotated = raw_rotated[:, lane_permutation(c.lane_order_key, pooled.shape[-1])]
    rotated = _point("key-rotated", raw_rotated, c)
    return KeyStages(pooled, normed, roped, rotated, raw_normed, raw_roped, raw_rotated)


def _point(name: str, values: np.ndarray, conventions: Conventions) -> np.ndarray:
    return round_bf16(values) if name in conventions.bf16_points else values

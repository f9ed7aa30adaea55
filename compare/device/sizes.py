"""Sizes of what is measured on a GPU: a serving layer's, and formats by short names."""

from __future__ import annotations

from dsa_crosscheck.reference.presets import PRESETS

HEADS, HEAD_DIM, PAGE, ROPE_DIM, RATIO = 64, 128, 64, 64, 4
NORM_EPS = 1e-6
PRESET_OF = {"fp8": "sglang-v4-fp8", "bf16": "sglang-v4-bf16", "fp4": "sglang-v4-fp4"}
"""Whose conventions a format has."""
CONVENTIONS = {name: PRESETS[preset].conventions for name, preset in PRESET_OF.items()}
L2_BYTES = 60 << 20
"""No less than an H200's cache; inputs are rotated until together they are more than three times that."""


def input_sets(read_bytes: int) -> int:
    """Sets of inputs of ``read_bytes`` each that no cache holds together; two at least."""
    return max(2, 1 + 3 * L2_BYTES // read_bytes)

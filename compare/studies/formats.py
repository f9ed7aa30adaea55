"""Storage formats as the precision and needle studies compare them: one codec for keys and queries."""

from __future__ import annotations

from dataclasses import replace

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import without_rounding

_FP8 = PRESETS["sglang-v4-fp8"].conventions.key
_FP4 = PRESETS["deepseek-v4"].conventions.key

FORMATS: dict[str, Codec] = {
    "exact": Codec("exact"),
    "bf16": Codec("bf16"),
    "fp8-fp32-scale": _FP8,
    "fp8-power-of-two": _FP8.with_field("scale", "power-of-two"),
    "fp4-even": _FP4,
    "fp4-toward-zero": _FP4.with_field("ties", "toward-zero"),
}
"""Codec of keys and queries by name, the finest first."""

STORED = tuple(name for name in FORMATS if name != "exact")
"""Formats that lose something."""

IDEAL = without_rounding(PRESETS["sglang-v4-fp8"].conventions)
"""The mathematics that all formats share, with no rounding anywhere."""

QUANTISER_INPUT = frozenset({"key-rotated", "query-rotated"})
"""Vectors are bfloat16 when they reach a quantiser, as in DeepSeek's inference code: without that no
value lies midway between two fp4 codes, and the two tie rules would be one."""


def with_hadamard(on: bool) -> Conventions:
    """``IDEAL`` with the transform on both sides or on neither."""
    if on:
        return IDEAL
    return replace(IDEAL, hadamard_key=False, hadamard_query=False, hadamard_order=None, hadamard_scale=None)


def conventions_of(name: str, hadamard: bool) -> Conventions:
    """Conventions under which the reference computes what the studies call format ``name``.

    ``ValueError`` lists the formats when ``name`` is none of them.
    """
    if name not in FORMATS:
        raise ValueError(f"`format` should be one of {tuple(FORMATS)}, got {name!r}")
    if name == "exact":
        return with_hadamard(hadamard)
    codec = FORMATS[name]
    return replace(
        with_hadamard(hadamard),
        key=codec,
        query=codec,
        query_scale_in="record" if codec.scale_bytes else None,
        bf16_points=QUANTISER_INPUT,
    )

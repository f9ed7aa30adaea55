"""Conventions of real implementations, a row each, with where the row comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry

TINY = 6 * 2.0**-126
"""Official fp4 amax floor: the smallest normal float32 scale times the largest e2m1 value."""

_EXACT = Codec("exact")
_BF16 = Codec("bf16")
_FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
_FP8_POW2 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")
_FP8_UNIT = Codec("fp8-e4m3fn", "unit")
_FP4_SGLANG = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="toward-zero", nibbles="low-even")
_FP4_OFFICIAL = Codec("fp4-e2m1", "power-of-two", TINY, "amax", ties="even", nibbles="low-even")

_SGLANG_FP8 = Conventions(key=_FP8, query=_FP8)

_OFFICIAL_BF16 = frozenset({"pooled", "normed", "key-roped", "key-rotated", "query-roped", "query-rotated"})


@dataclass(frozen=True)
class Preset:
    """A named implementation: its conventions, its sizes, and the source of both."""

    conventions: Conventions
    geometry: Geometry
    source: str


PRESETS: dict[str, Preset] = {
    "deepseek-v32": Preset(
        Conventions(
            key=_FP8_POW2,
            query=_FP8_POW2,
            norm="layer",
            rope_pairing="half-split",
            rope_dims="first",
            bf16_points=_OFFICIAL_BF16,
            topk_padding="future",
            topk_nan="first",
            topk_order="score",
        ),
        Geometry(compress_ratio=1, topk=2048),
        "DeepSeek-V3.2-Exp inference/model.py and kernel.py with the indexer RoPE fix of 2025-11-17 "
        "(half-split pairs on the first 64 dims); float32 head gate as in the fixed forks",
    ),
    "deepseek-v4": Preset(
        Conventions(
            key=_FP4_OFFICIAL,
            query=_FP4_OFFICIAL,
            bf16_points=_OFFICIAL_BF16,
            query_scale_in="record",
            weight_dtype="bf16",
            score_rounding="bf16-chain",
            topk_nan="first",
            topk_order="score",
        ),
        Geometry(topk=512),
        "DeepSeek-V4 inference/model.py and kernel.py (mirrors 0ec3a03c, 082a891c): bf16 between stages, "
        "fp4 fake-quantised keys and queries, bf16 head weight and scores",
    ),
    "sglang-v4-fp8": Preset(
        _SGLANG_FP8,
        Geometry(topk=512),
        "SGLang deepseek_v4/fused_norm_rope_v2.cuh @1049f225, main_norm_rope.cuh @00ef0ef2: float32 between "
        "stages, scale max(1e-4, amax)/448 kept in float32, reciprocal multiply",
    ),
    "sglang-v4-bf16": Preset(
        replace(_SGLANG_FP8, key=_BF16, query=_BF16, query_scale_in=None),
        Geometry(topk=512),
        "The fused store with a bf16 row, which upstream forbids for head_dim 128; layout as in the "
        "bf16 index pools of forks: 256 B a token, no scale, round to nearest even",
    ),
    "sglang-v4-fp4": Preset(
        replace(
            _SGLANG_FP8,
            key=_FP4_SGLANG,
            query=_FP4_SGLANG,
            query_scale_in="record",
            bf16_points=frozenset({"query-roped", "query-rotated"}),
        ),
        Geometry(topk=512),
        "SGLang fused_norm_rope_v2.cuh @1049f225 and fp4_utils.cuh @01ae3631: strict thresholds (midpoints "
        "toward zero), floor max(1e-4, amax)/6, bf16 rounding on the query side only",
    ),
    "deepgemm-fp8": Preset(
        replace(_SGLANG_FP8, query=_FP8_UNIT, query_scale_in=None),
        Geometry(topk=2048),
        "DeepGEMM tests/test_attention.py @54e22613: the query is cast to e4m3 with no scale, the key scale is "
        "amax/448 in float32 and multiplies after the head sum",
    ),
    "transformers-v4": Preset(
        Conventions(
            key=_EXACT,
            query=_EXACT,
            hadamard_key=False,
            hadamard_query=False,
            hadamard_order=None,
            hadamard_scale=None,
            query_scale_in=None,
            topk_order="score",
            topk_nan="first",
        ),
        Geometry(topk=512),
        "Hugging Face transformers models/deepseek_v4 DeepseekV4Indexer (>= 5.24), run in float32: no Hadamard, "
        "no quantisation, -1 padding",
    ),
}
"""Implementations by name. No two rows have the same conventions."""


def preset(name: str) -> Preset:
    """The row called ``name``; ``ValueError`` lists the names otherwise."""
    if name not in PRESETS:
        raise ValueError(f"`preset` should be one of {tuple(PRESETS)}, got {name!r}")
    return PRESETS[name]

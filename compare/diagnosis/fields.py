"""Which fields of ``Conventions`` act on which stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.reference.codec_spec import CODEC_CHOICES
from dsa_crosscheck.reference.conventions import CHOICES, Conventions, flips

_KEY_CODEC = tuple(f"key.{field}" for field in CODEC_CHOICES)
_QUERY_CODEC = tuple(f"query.{field}" for field in CODEC_CHOICES)
_BOTH = ("rope_pairing", "rope_dims", "hadamard_order", "hadamard_scale", "bf16_points")

FIELDS: dict[str, tuple[str, ...]] = {
    "pool": (),
    "store_keys": (
        *("norm", "norm_eps", "rope_position", "hadamard_key", "lane_order_key", "page_order"),
        *_BOTH,
        *_KEY_CODEC,
    ),
    "encode_query": (
        *("hadamard_query", "lane_order_query", "query_scale_in", "weight_dtype", "weight_scale"),
        *_BOTH,
        *_QUERY_CODEC,
    ),
    "score": (
        *("relu", "score_rounding", "page_order", "query_scale_in"),
        *("key.format", "key.scale", "key.nibbles", "query.format", "query.scale", "query.nibbles"),
    ),
    "select": ("topk_ties", "topk_order", "topk_padding", "topk_nan"),
    FUSED: (*CHOICES, "bf16_points", *_KEY_CODEC, *_QUERY_CODEC),
}
"""Fields that change what a candidate method makes of the input it is given."""

SHAPES: dict[str, tuple[str, ...]] = {
    "store_keys": ("norm", "key.format", "key.scale"),
    "encode_query": ("query.format", "query.scale", "query_scale_in"),
    "score": ("key.format", "key.scale", "query.format", "query.scale", "query_scale_in"),
}
"""Fields that change the shape of what a method receives or returns."""

POINTS_OF = {"key": ("pooled", "normed", "key-roped", "key-rotated"), "query": ("query-roped", "query-rotated")}
"""bf16 points of each operand's path."""


def stage_flips(conventions: Conventions, stage: str) -> Iterator[tuple[str, object, Conventions]]:
    """The flips that act on a stage: (path, new value, record).

    Beside the single bf16 points, all points of an operand are flipped together, on and off: an
    implementation that keeps float32 between stages drops them all at once.
    """
    acting = FIELDS[stage]
    for path, value, flipped in flips(conventions):
        if path in acting and not (path == "bf16_points" and not _acts(conventions, value, stage)):
            yield path, value, flipped
    if "bf16_points" not in acting:
        return
    now = conventions.bf16_points
    for points in POINTS_OF.values():
        for value in (now - set(points), now | set(points)):
            if len(value ^ now) > 1 and _acts(conventions, value, stage):
                yield "bf16_points", value, replace(conventions, bf16_points=frozenset(value))


def _acts(conventions: Conventions, points: object, stage: str) -> bool:
    assert isinstance(points, frozenset)
    changed = points ^ conventions.bf16_points
    wanted = {"store_keys": POINTS_OF["key"], "encode_query": POINTS_OF["query"]}.get(stage)
    return wanted is None or changed <= set(wanted)

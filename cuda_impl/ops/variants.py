"""The dispatch table: which codecs the store and query kernels are built for."""

from __future__ import annotations

from dataclasses import dataclass

from dsa_crosscheck.reference.codec_spec import Codec

HEAD_DIM = 128
"""Elements of an index key or query, the only number that the kernels are built for."""


@dataclass(frozen=True)
class Variant:
    """One compiled encoder.

    ``operand`` is what it encodes and ``head_dim`` how long that is; ``format``, ``scale`` and
    ``ties`` are the codec's; ``export`` is the kernel's own name for it.
    """

    operand: str
    head_dim: int
    format: str
    scale: str | None
    ties: str | None
    export: str


VARIANTS = (
    Variant("key", HEAD_DIM, "fp8-e4m3fn", "fp32", None, "fp8-fp32"),
    Variant("key", HEAD_DIM, "fp8-e4m3fn", "power-of-two", None, "fp8-power-of-two"),
    Variant("key", HEAD_DIM, "bf16", None, None, "bf16"),
    Variant("key", HEAD_DIM, "fp4-e2m1", "power-of-two", "even", "fp4-even"),
    Variant("key", HEAD_DIM, "fp4-e2m1", "power-of-two", "toward-zero", "fp4-toward-zero"),
    Variant("query", HEAD_DIM, "fp8-e4m3fn", "fp32", None, "fp8-fp32"),
    Variant("query", HEAD_DIM, "fp8-e4m3fn", "power-of-two", None, "fp8-power-of-two"),
    Variant("query", HEAD_DIM, "fp8-e4m3fn", "unit", None, "fp8-unit"),
    Variant("query", HEAD_DIM, "bf16", None, None, "bf16"),
    Variant("query", HEAD_DIM, "fp4-e2m1", "power-of-two", "even", "fp4-even"),
    Variant("query", HEAD_DIM, "fp4-e2m1", "power-of-two", "toward-zero", "fp4-toward-zero"),
    Variant("latent", 512, "fp8-e4m3fn", "power-of-two", None, "fp8-power-of-two"),
    Variant("latent", 512, "bf16", None, None, "bf16"),
)
"""Every combination that exists. Both values of ``scale_from`` and any ``amax_floor`` are run-time
arguments of each; the floor is on amax, fp32 scales apply by reciprocal, nibbles are low-even."""

FIXED = {"floor_on": "amax", "apply": "reciprocal", "nibbles": "low-even"}
"""Codec fields that every kernel treats one way, where they apply at all."""


def variant_for(function: str, operand: str, codec: Codec) -> Variant:
    """The row of ``VARIANTS`` for ``codec``.

    Raises ``TypeError`` for something that is no ``Codec``; ``ValueError``, listing what exists,
    when no kernel encodes so.
    """
    if not isinstance(codec, Codec):
        raise TypeError(f"`{function}(codec=...)` should be a Codec, got {type(codec).__name__}")
    rows = [row for row in VARIANTS if row.operand == operand]
    for row in rows:
        if (row.format, row.scale, row.ties) == (codec.format, codec.scale, codec.ties):
            break
    else:
        legal = ", ".join(str((row.head_dim, row.format, row.scale, row.ties)) for row in rows)
        raise ValueError(
            f"`{function}(codec=...)` should be one of these (head_dim, format, scale, ties): {legal}; "
            f"got {(codec.format, codec.scale, codec.ties)}"
        )
    for field, only in FIXED.items():
        value = getattr(codec, field)
        if value not in (None, only):
            raise ValueError(f"`{function}(codec=...)` should have {field}={only!r}, got {value!r}")
    return row


def scale_arguments(codec: Codec) -> tuple[float, bool]:
    """(amax floor, whether the scale is amax times the reciprocal), as the kernels take them."""
    return codec.amax_floor or 0.0, codec.scale_from == "reciprocal"

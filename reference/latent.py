"""Rows of the head_dim-512 latent cache, which the fused store kernel also writes.

Source: SGLang fused_norm_rope_v2.cuh @1049f225 (flashmla variant), FlashMLA tests/quant.py.
"""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.exact import bf16_bits, round_bf16
from dsa_crosscheck.reference.layout import PageLayout
from dsa_crosscheck.reference.norm import norm
from dsa_crosscheck.reference.quantise import encode, group_scales
from dsa_crosscheck.reference.rope import rope

LATENT_DIM = 512
ROPE_DIM = 64
GROUP = 64
NOPE_DIM = LATENT_DIM - ROPE_DIM
PAGE_ALIGN = 576
_FP8 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")


def latent_layout(format_name: str, page_size: int) -> PageLayout:
    """``fp8`` 584-byte rows (448 fp8 + 64 bf16, then 7 scale bytes and a pad) or ``bf16`` 1,024-byte rows.

    ``ValueError`` for another format.
    """
    if format_name == "fp8":
        return PageLayout(page_size, NOPE_DIM + 2 * ROPE_DIM, NOPE_DIM // GROUP + 1, page_align=PAGE_ALIGN)
    if format_name == "bf16":
        return PageLayout(page_size, 2 * LATENT_DIM, 0)
    raise ValueError(f"`latent_layout(format_name=...)` should be 'fp8' or 'bf16', got {format_name!r}")


def rotate_latent(
    latent: np.ndarray, norm_weight: np.ndarray, rope_table: np.ndarray, positions: np.ndarray, *, eps: float
) -> np.ndarray:
    """RMSNorm over 512 dims, then interleaved RoPE of the last 64; float64 [n, 512]. No Hadamard."""
    normed = norm(latent, norm_weight, np.zeros(LATENT_DIM), kind="rms", eps=eps)
    return rope(normed, rope_table, positions, pairing="interleaved", dims="last")


def encode_latent(rotated: np.ndarray, format_name: str) -> np.ndarray:
    """Row bytes, uint8 [n, 584 or 1024].

    fp8: nope values are rounded to bfloat16, then quantised in groups of 64 by a power-of-two scale
    (UE8M0 byte); rope dims are bfloat16; the last byte is zero.
    """
    bits = np.ascontiguousarray(bf16_bits(rotated)).astype("<u2").view(np.uint8)
    if format_name == "bf16":
        return bits
    nope = round_bf16(rotated[:, :NOPE_DIM]).astype(np.float32).reshape(rotated.shape[0], NOPE_DIM // GROUP, GROUP)
    scale = group_scales(np.abs(nope).max(axis=-1, initial=0.0), _FP8)
    codes = encode(nope / scale[..., None], _FP8.spec, "even").reshape(rotated.shape[0], NOPE_DIM)
    exponents = (scale.view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    pad = np.zeros((rotated.shape[0], 1), np.uint8)
    return np.concatenate([codes, bits[:, 2 * NOPE_DIM :], exponents, pad], axis=1)

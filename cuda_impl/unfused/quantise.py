"""Encoding of float32 vectors as codes with scales, and back."""

from __future__ import annotations

from typing import NamedTuple

import torch

from dsa_crosscheck.reference.codec_spec import Codec

_FP8_DTYPES = {"fp8-e4m3fn": torch.float8_e4m3fn, "fp8-e4m3fnuz": torch.float8_e4m3fnuz}


class Quantised(NamedTuple):
    """``values`` uint8 [..., value bytes]; ``scales`` float32 [..., groups], empty without a scale."""

    values: torch.Tensor
    scales: torch.Tensor


def quantise(x: torch.Tensor, codec: Codec, *, known_finite: bool = False) -> Quantised:
    """Encodes the last axis of float32 ``x`` [..., head_dim] as ``codec`` says.

    An all-zero group takes its scale from the floor. Elements beyond the format's range clamp to its
    largest value, infinities of ``unit`` fp8 too. NaN is stored as NaN by ``exact``, ``bf16`` and
    ``unit`` fp8. Raises ``ValueError`` when an element of a format with scales is not finite: its group
    would have no scale. ``known_finite`` leaves out that look, for which a GPU's host must wait.
    """
    if codec.format == "exact":
        return Quantised(_bytes(x), x.new_empty(*x.shape[:-1], 0))
    if codec.format == "bf16":
        return Quantised(_bytes(x.to(torch.bfloat16)), x.new_empty(*x.shape[:-1], 0))
    spec = codec.spec
    groups = codec.groups(x.shape[-1])
    if groups:
        if not known_finite and not bool(torch.isfinite(x).all()):
            raise ValueError(f"`quantise(x=...)` should be finite for {codec.format} with scales, got inf or NaN")
        parts = x.unflatten(-1, (groups, -1))
        scales = _scales(parts.abs().amax(dim=-1), codec)
        factor = scales.unsqueeze(-1)
        scaled = parts * (1.0 / factor) if codec.apply == "reciprocal" else parts / factor
        x = scaled.flatten(-2)
    else:
        scales = x.new_empty(*x.shape[:-1], 0)
    clamped = x.clamp(-spec.max_value, spec.max_value)
    if spec.bits == 8:
        return Quantised(_bytes(clamped.to(_FP8_DTYPES[codec.format])), scales)
    return Quantised(_pack_nibbles(_e2m1_codes(clamped, codec), codec), scales)


def dequantise(values: torch.Tensor, codec: Codec) -> torch.Tensor:
    """Elements float32 [..., head_dim] of ``values`` uint8 [..., value bytes], without their scales."""
    if codec.format == "exact":
        return values.contiguous().view(torch.float32)
    if codec.format == "bf16":
        return values.contiguous().view(torch.bfloat16).to(torch.float32)
    if codec.spec.bits == 8:
        return values.contiguous().view(_FP8_DTYPES[codec.format]).to(torch.float32)
    low, high = values & 15, values >> 4
    pair = (low, high) if codec.nibbles == "low-even" else (high, low)
    codes = torch.stack(pair, dim=-1).flatten(-2)
    table = _e2m1_magnitudes(values.device)
    return torch.cat((table, -table))[codes.long()]


def scale_bytes(scales: torch.Tensor, codec: Codec) -> torch.Tensor:
    """Stored form of ``scales`` [..., groups]: little-endian float32, or UE8M0 for fp4."""
    if codec.scale_bytes == 1:
        return (scales.view(torch.int32) >> 23).to(torch.uint8)
    return _bytes(scales)


def scales_from_bytes(stored: torch.Tensor, codec: Codec) -> torch.Tensor:
    """Scales float32 [..., groups] of their stored bytes; UE8M0 255 is NaN."""
    if codec.scale_bytes == 1:
        # 2^-127 is a subnormal float32, whose exponent bits are zero.
        bits = torch.where(stored == 0, 0x00400000, stored.to(torch.int32) << 23)
        return torch.where(stored == 255, torch.nan, bits.view(torch.float32))
    return stored.contiguous().view(torch.float32)


def apply_scales(elements: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Elements [..., head_dim] times the scale of their group; unchanged without scales."""
    if scales.shape[-1] == 0:
        return elements
    return (elements.unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)).flatten(-2)


def _bytes(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:  # torch refuses to view an empty tensor as bytes
        return torch.empty(*x.shape[:-1], x.shape[-1] * x.element_size(), dtype=torch.uint8, device=x.device)
    return x.contiguous().view(torch.uint8)


def _scales(amax: torch.Tensor, codec: Codec) -> torch.Tensor:
    floor = codec.amax_floor
    if codec.floor_on == "amax":
        amax = amax.clamp(min=floor)
    largest = torch.tensor(codec.spec.max_value, dtype=torch.float32)
    scales = amax * (1.0 / largest) if codec.scale_from == "reciprocal" else amax / largest
    if codec.floor_on == "scale":
        scales = scales.clamp(min=floor)
    return _power_of_two_up(scales) if codec.scale == "power-of-two" else scales


def _power_of_two_up(x: torch.Tensor) -> torch.Tensor:
    """Least power of two at or above positive ``x``, on the bits: a logarithm may miss by one."""
    bits = x.view(torch.int32)
    return ((bits + 0x007FFFFF) & 0x7F800000).view(torch.float32)


def _e2m1_codes(x: torch.Tensor, codec: Codec) -> torch.Tensor:
    magnitude = x.abs()
    # Midpoints between neighbouring codes. Ties to even: a midpoint counts as passed when the code
    # above it is even.
    midpoints = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
    codes = torch.zeros_like(x, dtype=torch.uint8)
    for above, midpoint in enumerate(midpoints, start=1):
        up_at_tie = codec.ties == "even" and above % 2 == 0
        codes += magnitude >= midpoint if up_at_tie else magnitude > midpoint
    negative = torch.signbit(x)
    if codec.ties == "toward-zero":
        negative &= codes > 0
    return codes | (negative.to(torch.uint8) << 3)


def _pack_nibbles(codes: torch.Tensor, codec: Codec) -> torch.Tensor:
    even, odd = codes.unflatten(-1, (-1, 2)).unbind(-1)
    low, high = (even, odd) if codec.nibbles == "low-even" else (odd, even)
    return low | (high << 4)


def _e2m1_magnitudes(device: torch.device) -> torch.Tensor:
    """0, 0.5, 1, 1.5, 2, 3, 4, 6: three straight lines, made where they are used and not copied there."""
    code = torch.arange(8.0, device=device)
    return torch.maximum(torch.maximum(code / 2, code - 2), 2 * code - 8)

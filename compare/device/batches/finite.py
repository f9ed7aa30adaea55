"""Random bytes made finite codes of a format."""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.device.sizes import HEAD_DIM, PAGE
from dsa_crosscheck.reference.conventions import Conventions


def finite_pages(cache: torch.Tensor, c: Conventions, generator: torch.Generator) -> torch.Tensor:
    """``cache`` uint8 [pages, page_bytes] with finite codes and fp32 scales over three octaves."""
    values = PAGE * c.key.value_bytes(HEAD_DIM)
    cache[:, :values] = _finite_codes(cache[:, :values], c.key.spec.bits)
    if c.key.spec.bits == 8:
        scales = torch.rand(cache.shape[0], PAGE, generator=generator, device=cache.device).mul(3).exp2() / 448
        cache[:, values:] = scales.contiguous().view(torch.uint8)
    elif c.key.spec.bits == 4:
        cache[:, values:] = cache[:, values:] % 4 + 120
    return cache


def finite_query(codes: torch.Tensor, c: Conventions) -> torch.Tensor:
    """``codes`` uint8 [rows, heads, record] with finite codes and, where they are in the record, ordinary scales."""
    values = c.query.value_bytes(HEAD_DIM)
    codes[..., :values] = _finite_codes(codes[..., :values], c.query.spec.bits)
    codes[..., values:] = codes[..., values:] % 4 + 120
    return codes


def _finite_codes(raw: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 8:
        return torch.where(raw & 0x7F == 0x7F, raw - 1, raw)
    if bits == 16:  # bfloat16 between 1/2 and 4 in size: sign, exponent 126 to 128, random mantissa
        pairs = raw.contiguous().view(torch.int16).int()
        exponent = 126 + (pairs >> 7 & 3) % 3
        return (pairs & 0x8000 | exponent << 7 | pairs & 0x7F).to(torch.int16).view(torch.uint8)
    return raw

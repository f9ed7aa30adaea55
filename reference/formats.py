"""Number formats of stored keys and queries, as data.

A small format is its table of non-negative values in code order; a signed code is that index
with the sign bit above it. Encoding rules (scales, ties) belong to a convention, not to a format.

Sources: OCP 8-bit Floating Point Specification (e4m3fn), the FNUZ variant of AMD CDNA3
(bias 8, no negative zero, 0x80 is NaN), OCP Microscaling Formats (e2m1, e8m0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Format:
    """A storage format for one element.

    ``bits``: width of a code. ``group``: elements sharing one scale (0 = the format has no scale).
    ``max_value``: largest finite magnitude an encoder may produce. ``exponent_bits``,
    ``mantissa_bits`` and ``bias`` describe codes of at most 8 bits. ``nan_codes``: codes that
    decode to NaN.
    """

    name: str
    bits: int
    group: int = 0
    max_value: float = float("inf")
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    nan_codes: tuple[int, ...] = ()

    @cached_property
    def decode_table(self) -> np.ndarray:
        """Value of every code, float64 [2**bits]; only for formats of at most 8 bits."""
        codes = np.arange(1 << self.bits)
        magnitude = codes & ((1 << (self.bits - 1)) - 1)
        exponent = magnitude >> self.mantissa_bits
        mantissa = magnitude & ((1 << self.mantissa_bits) - 1)
        subnormal = exponent == 0
        significand = np.where(subnormal, 0, 1 << self.mantissa_bits) + mantissa
        power = np.where(subnormal, 1, exponent) - self.bias - self.mantissa_bits
        value = np.ldexp(significand.astype(np.float64), power)
        value = np.where(codes >> (self.bits - 1) == 1, -value, value)
        value[list(self.nan_codes)] = np.nan
        return value

    @cached_property
    def magnitudes(self) -> np.ndarray:
        """Finite non-negative values an encoder may produce, ascending, float64; index = code."""
        table = self.decode_table[: 1 << (self.bits - 1)]
        return table[table <= self.max_value]


EXACT = Format("exact", bits=32)
BF16 = Format("bf16", bits=16)
E4M3FN = Format(
    "fp8-e4m3fn",
    bits=8,
    group=128,
    max_value=448.0,
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    nan_codes=(0x7F, 0xFF),
)
E4M3FNUZ = Format(
    "fp8-e4m3fnuz",
    bits=8,
    group=128,
    max_value=240.0,
    exponent_bits=4,
    mantissa_bits=3,
    bias=8,
    nan_codes=(0x80,),
)
E2M1 = Format("fp4-e2m1", bits=4, group=32, max_value=6.0, exponent_bits=2, mantissa_bits=1, bias=1)

FORMATS: dict[str, Format] = {f.name: f for f in (EXACT, BF16, E4M3FN, E4M3FNUZ, E2M1)}
"""Every storage format by name. ``exact`` stores IEEE float32."""

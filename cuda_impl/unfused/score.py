"""Scores of every query row against every gathered key, with the head axis in memory."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.unfused.quantise import Quantised, apply_scales, dequantise
from dsa_crosscheck.cuda_impl.unfused.rounding import to_bf16, to_fp16
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions


def score_dense(
    query: Quantised, weights: torch.Tensor, keys: Quantised, lengths: torch.Tensor, conventions: Conventions
) -> torch.Tensor:
    """Float32 [rows, n]: sum over heads of weight * relu(query . key), -inf at or past a row's length.

    ``query`` holds vectors [rows, heads, ...], ``keys`` [rows, n, ...]; ``weights`` [rows, heads];
    ``lengths`` [rows]. A single scale of a key multiplies after the head sum, unless every product
    is rounded: then it belongs to the product. Grouped scales are part of the elements. NaN
    propagates through the relu.
    """
    chain = conventions.score_rounding == "bf16-chain"
    queries = apply_scales(dequantise(query.values, conventions.query), query.scales)
    elements, factor = _elements(keys, conventions.key)
    product = queries @ elements.transpose(1, 2)
    if chain:
        product = to_bf16(product * factor)
    if conventions.relu:
        product = torch.relu(product)
    weighted = product * weights.unsqueeze(-1)
    total = to_bf16(to_bf16(weighted).sum(dim=1)) if chain else weighted.sum(dim=1) * factor.squeeze(1)
    if conventions.score_rounding == "fp16":
        total = to_fp16(total)
    elif conventions.score_rounding == "bf16":
        total = to_bf16(total)
    column = torch.arange(total.shape[1], device=total.device)
    return total.masked_fill(column >= lengths.unsqueeze(1), -torch.inf)


def _elements(keys: Quantised, codec: Codec) -> tuple[torch.Tensor, torch.Tensor]:
    """Key elements [rows, n, head_dim] and what remains to multiply, [rows, 1, n or 1]."""
    elements = dequantise(keys.values, codec)
    if keys.scales.shape[-1] == 1:
        return elements, keys.scales.transpose(1, 2)
    return apply_scales(elements, keys.scales), elements.new_ones(1, 1, 1)

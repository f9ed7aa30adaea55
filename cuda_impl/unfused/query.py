"""Query codes and head weights."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.unfused.cache import record_bytes
from dsa_crosscheck.cuda_impl.unfused.quantise import Quantised, quantise
from dsa_crosscheck.cuda_impl.unfused.rounding import to_bf16
from dsa_crosscheck.reference.conventions import Conventions


def encode(rotated: torch.Tensor, gate: torch.Tensor, conventions: Conventions) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes uint8 [rows, heads, bytes] and weights float32 [rows, heads] of rotated queries.

    The codes end with the scale bytes under ``query_scale_in='record'``; under ``'weights'`` the
    weight is multiplied by the scale after everything else. Raises ``ValueError`` when a head has
    several scales and they should be folded into its one weight.
    """
    quantised = quantise(rotated, conventions.query)
    heads, head_dim = rotated.shape[1:]
    weights = gate
    if conventions.weight_scale != "none":
        weights = weights * torch.tensor(head_dim**-0.5 * heads**-0.5, dtype=torch.float32)
    if conventions.weight_dtype == "bf16":
        weights = to_bf16(weights)
    if conventions.query_scale_in != "weights":
        return record_bytes(quantised, conventions.query), weights
    if quantised.scales.shape[-1] != 1:
        raise ValueError(
            "`Conventions(query_scale_in='weights')` should have one scale a head to fold, "
            f"got {quantised.scales.shape[-1]} for {conventions.query.format}"
        )
    codes = record_bytes(Quantised(quantised.values, quantised.scales[..., :0]), conventions.query)
    return codes, weights * quantised.scales[..., 0]

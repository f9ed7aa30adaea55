"""Faults to inject into a right candidate, and where a comparison must say they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from candidates import FP8, case, flipped, small_keys

from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.reference.inputs import Inputs

KEYS_A_PAGE = 64
VALUE_BYTES = KEYS_A_PAGE * 128
"""Bytes of the fp8 values of a page; its scales follow."""


@dataclass(frozen=True)
class Fault:
    """``change`` replaces ``method`` and must fail as ``stage``, the name of a line of the report."""

    method: str
    stage: str
    change: Callable[..., Any]
    preset: str = FP8
    inputs: Callable[[], Inputs] | None = None

    def case(self) -> Inputs:
        """Inputs that show the fault."""
        return self.inputs() if self.inputs else case(self.preset)


def with_field(method: str, path: str, value: object) -> Callable[..., Any]:
    """The method under conventions that differ in one field."""
    return lambda base, *args: getattr(flipped(base, path, value), method)(*args)


def pool_without_overlap(base: Unfused, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Only a group's own tokens."""
    dim = bias.shape[1] // 2
    alone = kv_score.clone()
    alone[:, 2 * dim : 3 * dim] = -torch.inf
    return base.pool(alone, bias)


def pool_swapped_bias(base: Unfused, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The bias of own tokens on the overlap, and the other way round."""
    return base.pool(kv_score, bias.roll(bias.shape[1] // 2, dims=1))


def store_layer_norm(base: Unfused, pooled: torch.Tensor, weight: torch.Tensor, *rest: torch.Tensor) -> None:
    """LayerNorm without a bias for RMSNorm."""
    parameters = torch.stack([weight, torch.zeros_like(weight)])
    flipped(base, "norm", "layer").store_keys(pooled, parameters, *rest)


def store_neighbours_scale(base: Unfused, pooled: torch.Tensor, *rest: torch.Tensor) -> None:
    """Every key's codes beside the scale of the key before it."""
    cache = rest[-1]
    other = cache.clone()
    base.store_keys(pooled.roll(1, dims=0), *rest[:-1], other)
    base.store_keys(pooled, *rest)
    cache[:, VALUE_BYTES:] = other[:, VALUE_BYTES:]


def store_fnuz_codes(base: Unfused, *args: torch.Tensor) -> None:
    """Values scaled for e4m3fn, encoded as e4m3fnuz."""
    slots, cache = args[4:]
    base.store_keys(*args)
    page, offset = slots // KEYS_A_PAGE, slots % KEYS_A_PAGE
    stored = cache[:, :VALUE_BYTES].view(-1, KEYS_A_PAGE, 128)
    values = stored[page, offset].view(torch.float8_e4m3fn).float().clamp(-240, 240)
    stored[page, offset] = values.to(torch.float8_e4m3fnuz).view(torch.uint8)


def store_truncated(base: Unfused, *args: torch.Tensor) -> None:
    """The upper halves of float32 keys: bfloat16 rounded toward zero."""
    slots, cache = args[4:]
    full = torch.zeros(cache.shape[0], 2 * cache.shape[1], dtype=torch.uint8)
    flipped(base, "key.format", "exact").store_keys(*args[:5], full)
    halves = (full.view(torch.int32) >> 16).to(torch.int16).view(torch.uint8)
    page, offset = slots // KEYS_A_PAGE, slots % KEYS_A_PAGE
    stored, truncated = (pages.view(-1, KEYS_A_PAGE, 256) for pages in (cache, halves))
    stored[page, offset] = truncated[page, offset]


def store_one_more(base: Unfused, *args: torch.Tensor) -> None:
    """The last key once more, in the first free slot behind another key."""
    pooled, weight, table, positions, slots, cache = args
    base.store_keys(*args)
    used = set(slots.tolist())
    past = min(slot + 1 for slot in used if slot + 1 not in used)
    base.store_keys(pooled[-1:], weight, table, positions[-1:], torch.tensor([past]), cache)


def store_all_but_one(base: Unfused, *args: torch.Tensor) -> None:
    """One key is forgotten."""
    slots = args[4].clone()
    slots[7] = -1
    base.store_keys(*args[:4], slots, args[5])


def store_clamped_slots(base: Unfused, *args: torch.Tensor) -> None:
    """A key that should be skipped goes to slot 0."""
    base.store_keys(*args[:4], args[4].clamp(min=0), args[5])


def query_at_next_position(base: Unfused, query: torch.Tensor, gate: torch.Tensor, *rest: torch.Tensor) -> Any:
    """RoPE of the token after."""
    table, positions = rest
    return base.encode_query(query, gate, table, (positions + 1).clamp(max=table.shape[0] - 1))


def weights_times(factor: float) -> Callable[..., Any]:
    """Head weights off by a constant."""

    def encode_query(base: Unfused, *args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        codes, weights = base.encode_query(*args)
        return codes, weights * factor

    return encode_query


def bf16_weights(base: Unfused, *args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Head weights through bfloat16."""
    codes, weights = base.encode_query(*args)
    return codes, weights.bfloat16().float()


FAULTS: dict[str, Fault] = {
    "pool without overlap": Fault("pool", "pool", pool_without_overlap),
    "pool with bias halves swapped": Fault("pool", "pool", pool_swapped_bias),
    "keys without Hadamard": Fault("store_keys", "key scales", with_field("store_keys", "hadamard_key", False)),
    "keys with half-split RoPE": Fault(
        "store_keys", "key scales", with_field("store_keys", "rope_pairing", "half-split")
    ),
    "keys rotated as their group's last token": Fault(
        "store_keys", "key scales", lambda base, *a: base.store_keys(*a[:3], a[3] + 3, *a[4:])
    ),
    "norm without eps": Fault(
        "store_keys", "key scales", with_field("store_keys", "norm_eps", 1e-30), inputs=small_keys
    ),
    "LayerNorm for RMSNorm": Fault("store_keys", "key scales", store_layer_norm),
    "neighbour's key scale": Fault("store_keys", "key scales", store_neighbours_scale),
    "codes of e4m3fnuz": Fault("store_keys", "key codes", store_fnuz_codes),
    "bf16 keys truncated": Fault("store_keys", "key codes", store_truncated, "sglang-v4-bf16"),
    "fp4 nibbles swapped": Fault(
        "store_keys", "key codes", with_field("store_keys", "key.nibbles", "high-even"), "sglang-v4-fp4"
    ),
    "fp4 keys of bf16 values, ties toward zero": Fault(
        "store_keys", "key codes", with_field("store_keys", "key.ties", "toward-zero"), "deepseek-v4"
    ),
    "page bytes in another order": Fault(
        "store_keys", "key scales", with_field("store_keys", "page_order", "token-interleaved")
    ),
    "one key too many": Fault("store_keys", "cache bytes", store_one_more),
    "one key not stored": Fault("store_keys", "key scales", store_all_but_one),
    "power-of-two query scale left unrounded": Fault(
        "encode_query", "query codes", with_field("encode_query", "query.scale", "fp32"), "deepseek-v32"
    ),
    "fp4 queries of bf16 values, ties to even": Fault(
        "encode_query", "query codes", with_field("encode_query", "query.ties", "even"), "sglang-v4-fp4"
    ),
    "queries rotated one position late": Fault("encode_query", "query codes", query_at_next_position),
    "queries without Hadamard": Fault(
        "encode_query", "query codes", with_field("encode_query", "hadamard_query", False)
    ),
    "weights without heads^-1/2": Fault("encode_query", "head weights", weights_times(8.0)),
    "weights off by 1e-4": Fault("encode_query", "head weights", weights_times(1.0001)),
    "weights through bf16": Fault("encode_query", "head weights", bf16_weights),
}

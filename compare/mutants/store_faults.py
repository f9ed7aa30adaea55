"""Faults of the key store: wrong numbers, wrong places, missing records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.mutants.fault import Fault, Right
from dsa_crosscheck.reference.cache import read_records, write_records
from dsa_crosscheck.reference.hadamard import hadamard
from dsa_crosscheck.reference.keys import rotate_keys
from dsa_crosscheck.reference.quantise import Quantised, dequantise, encode, quantise
from dsa_crosscheck.reference.record import pack_record, unpack_record

Tensor = torch.Tensor


def _rope_at_last_token(
    right: Right, pooled: Tensor, weight: Tensor, table: Tensor, positions: Tensor, slots: Tensor, cache: Tensor
) -> None:
    ratio = right.inputs.geometry.compress_ratio
    right.candidate.store_keys(pooled, weight, table, positions // ratio * ratio + ratio - 1, slots, cache)


def _norm_weight_bf16(right: Right, pooled: Tensor, weight: Tensor, *rest: Tensor) -> None:
    right.candidate.store_keys(pooled, weight.bfloat16().float(), *rest)


def _hadamard_twice(right: Right, *args: Tensor) -> None:
    records = _records(right, *args)
    codec = right.conventions.key
    keys = dequantise(unpack_record(records, codec, args[0].shape[1]), codec)
    again = hadamard(keys, order="natural", scale="orthonormal")
    _write(right, pack_record(quantise(again, codec), codec), *args)


def _amax_of_half(right: Right, *args: Tensor) -> None:
    pooled, weight, table, positions, *_ = (one.numpy() for one in args)
    weight, bias = weight if weight.ndim == 2 else (weight, np.zeros_like(weight))
    codec = right.conventions.key
    if not codec.scale_bytes:
        right.candidate.store_keys(*args)
        return
    keys = rotate_keys(pooled, weight, bias, table, positions, right.conventions).rotated.astype(np.float32)
    grouped = keys.reshape(len(keys), codec.groups(keys.shape[1]), -1)
    seen = grouped.copy()
    seen[..., grouped.shape[-1] // 2 :] = 0.0
    scales = quantise(seen.reshape(keys.shape), codec).scales
    codes = encode(grouped / scales[..., None], codec.spec, codec.ties or "even").reshape(keys.shape)
    _write(right, pack_record(Quantised(codes, scales), codec), *args)


def _one_key_late(right: Right, pooled: Tensor, *rest: Tensor) -> None:
    weight, table, positions, slots, cache = rest
    right.candidate.store_keys(pooled.roll(1, 0), weight, table, positions.roll(1, 0), slots, cache)


def _one_record_shifted(right: Right, *args: Tensor) -> None:
    *numbers, slots, cache = args
    middle = slots.shape[0] // 2
    moved = slots.clone()
    moved[middle], moved[middle + 1] = slots[middle + 1], -1
    right.candidate.store_keys(*numbers, moved, cache)


def _negative_slot_written(right: Right, *args: Tensor) -> None:
    # Which skipped key wins the last slot is decided here, so that the fault is the same every time.
    *numbers, slots, cache = args
    last = cache.shape[0] * right.inputs.geometry.page_size - 1
    skipped = torch.nonzero(slots < 0)[-1:, 0]
    right.candidate.store_keys(*numbers, slots.index_fill(0, skipped, last), cache)


def _next_page(right: Right, *args: Tensor) -> None:
    *numbers, slots, cache = args
    size = right.inputs.geometry.page_size
    moved = (slots + size) % (cache.shape[0] * size)
    right.candidate.store_keys(*numbers, torch.where(slots < 0, slots, moved), cache)


def _stale_tail(right: Right, *args: Tensor) -> None:
    *numbers, slots, cache = args
    request = torch.from_numpy(right.inputs.key_request)
    newest = torch.ones_like(slots, dtype=torch.bool)
    newest[:-1] = request[1:] != request[:-1]
    right.candidate.store_keys(*numbers, torch.where(newest, -1, slots), cache)


def _offset_wraps(right: Right, *args: Tensor) -> None:
    *numbers, slots, cache = args
    half = cache.shape[0] // 2 * right.inputs.geometry.page_size
    right.candidate.store_keys(*numbers, torch.where(slots < 0, slots, slots % half), cache)


def _token_as_page(right: Right, *args: Tensor) -> None:
    *numbers, slots, cache = args
    page = slots % cache.shape[0]
    right.candidate.store_keys(*numbers, torch.where(slots < 0, slots, page * right.inputs.geometry.page_size), cache)


def _neighbour_scale(right: Right, *args: Tensor) -> None:
    records = _records(right, *args)
    width = right.layout.value_bytes
    records[:, width:] = np.roll(records[:, width:], 1, axis=0)
    _write(right, records, *args)


def _scales_in_next_page(right: Right, *args: Tensor) -> None:
    slots, cache = args[-2].numpy(), args[-1].numpy()
    records = _records(right, *args)
    layout = right.layout
    kept = slots >= 0
    page, offset = np.divmod(slots[kept], layout.page_size)
    values, scales = np.split(layout.addresses[offset], [layout.value_bytes], axis=1)
    cache[page[:, None], values] = records[kept, : layout.value_bytes]
    cache[(page[:, None] + 1) % cache.shape[0], scales] = records[kept, layout.value_bytes :]


def _byte_past_record(right: Right, *args: Tensor) -> None:
    right.candidate.store_keys(*args)
    cache = args[-1]
    unused = np.setdiff1d(np.arange(cache.shape[0]), right.inputs.block_table)[-1]
    cache[unused, 0] ^= 0xFF


def _records(right: Right, *args: Tensor) -> np.ndarray:
    """The right records of every key, stored or not, uint8 [keys, record_bytes]."""
    *numbers, _, cache = args
    keys = args[0].shape[0]
    pages = -(-keys // right.layout.page_size)
    scratch = torch.zeros(pages, cache.shape[1], dtype=torch.uint8)
    every = torch.arange(keys)
    right.candidate.store_keys(*numbers, every, scratch)
    return read_records(scratch.numpy(), right.layout, every.numpy())


def _write(right: Right, records: np.ndarray, *args: Tensor) -> None:
    write_records(args[-1].numpy(), right.layout, records, args[-2].numpy())


def _fault(name: str, what: str, method: Callable[..., Any]) -> Fault:
    return Fault(name, "store_keys", what, method)


STORE_FAULTS = (
    _fault("store-rope-last-token", "a key is rotated by the position of its group's last token", _rope_at_last_token),
    _fault("store-norm-weight-bf16", "the norm weight is rounded to bf16", _norm_weight_bf16),
    _fault("store-hadamard-undone", "keys get one Hadamard transform more, which undoes theirs", _hadamard_twice),
    _fault("store-amax-of-half", "a group's largest magnitude is sought in its first half only", _amax_of_half),
    _fault("store-one-key-late", "every slot holds the record of the key before", _one_key_late),
    _fault("store-record-shifted", "one key's record lies at its neighbour's slot", _one_record_shifted),
    _fault("store-negative-slot", "a key to be skipped is written to the cache's last slot", _negative_slot_written),
    _fault("store-next-page", "records lie one physical page further", _next_page),
    _fault("store-stale-tail", "the newest key of each request is not written", _stale_tail),
    _fault("store-offset-wraps", "offsets past half of the cache wrap around, as 32-bit products do", _offset_wraps),
    _fault("store-token-as-page", "a slot number is used as a page number", _token_as_page),
    _fault("store-neighbour-scale", "each record carries the scales of the key before", _neighbour_scale),
    _fault("store-scales-next-page", "scales lie in the next page's scale region", _scales_in_next_page),
    _fault("store-stray-byte", "a byte of a page that nobody owns is changed", _byte_past_record),
)

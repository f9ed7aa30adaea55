"""The unfused torch path: a launch an operation, every intermediate in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.device.batches import ScoreBatch, SelectBatch, StoreBatch
from dsa_crosscheck.compare.device.predicted import predicted_bytes
from dsa_crosscheck.compare.device.sizes import HEAD_DIM
from dsa_crosscheck.cuda_impl.unfused.cache import (
    gather_records,
    page_addresses,
    page_layout,
    record_bytes,
    split_record,
    write_records,
)
from dsa_crosscheck.cuda_impl.unfused.pipeline import key_vectors
from dsa_crosscheck.cuda_impl.unfused.quantise import quantise
from dsa_crosscheck.cuda_impl.unfused.score import score_dense
from dsa_crosscheck.cuda_impl.unfused.select import sorted_rows
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.presets import PRESETS

STAGES = {"score": ("fp8", "bf16", "fp4"), "store": ("fp8", "bf16", "fp4"), "select": ("fp32",)}


def score(batch: ScoreBatch) -> Callable[[], object]:
    """Gathers every row's keys as float32 and keeps the head axis; ``Unsupported`` where that does not fit."""
    c = batch.conventions
    if batch.cache.is_cuda:
        _check_fits(batch)
    layout = page_layout(c.key, Geometry(), c.page_order)
    addresses = page_addresses(layout, batch.cache.device)
    pages = batch.block_table[batch.request_of_row.long()].long()
    keys_seen = batch.shape.keys

    def launch() -> None:
        keys = gather_records(batch.cache, pages, c.key, layout.value_bytes, addresses)
        keys = keys._replace(values=keys.values[:, :keys_seen], scales=keys.scales[:, :keys_seen])
        query = split_record(batch.codes, c.query, c.query.value_bytes(HEAD_DIM))
        batch.scores = score_dense(query, batch.weights, keys, batch.lengths, c)

    return launch


def store(batch: StoreBatch) -> Callable[[], object]:
    """Norm, RoPE, Hadamard, encode and an indexed write, one after another."""
    c = batch.conventions
    addresses = page_addresses(page_layout(c.key, Geometry(), c.page_order), batch.cache.device)
    tensors = (batch.rows, batch.norm_weight, batch.rope_table)

    def launch() -> None:
        positions = batch.seq_lens.long() - batch.compress_ratio
        keys = quantise(key_vectors(*tensors, positions, c), c.key, known_finite=True)
        write_records(batch.cache, record_bytes(keys, c.key), batch.slots, addresses)

    return launch


def select(batch: SelectBatch) -> Callable[[], object]:
    """Stable sorts of whole rows."""
    c = PRESETS["sglang-v4-fp8"].conventions

    def launch() -> None:
        batch.selected = sorted_rows(batch.scores, batch.lengths, batch.k, c)

    return launch


def _check_fits(batch: ScoreBatch) -> None:
    needed = predicted_bytes("unfused", batch.format, batch.shape.rows, batch.shape.keys)
    free = torch.cuda.mem_get_info()[0]
    if needed > free:
        raise Unsupported(f"scoring {batch.shape} unfused should take {needed:,} bytes, and {free:,} are free")

"""Stored bytes against the emulated kernel's, which are the same on every machine."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsa_crosscheck.compare.device.batches import StoreBatch
from dsa_crosscheck.compare.device.sizes import PAGE
from dsa_crosscheck.cuda_impl.ops.store import store_decode
from dsa_crosscheck.cuda_impl.unfused.cache import page_addresses, page_layout
from dsa_crosscheck.reference.geometry import Geometry

CHECKED_ROWS = 4096


def store_judge(batch: StoreBatch) -> Callable[[StoreBatch], dict[str, object]]:
    """Judge of records spread over all rows: ``differing`` bytes of ``compared`` ones."""
    step = -(-batch.shape.rows // CHECKED_ROWS)
    rows, lengths = (tensor[::step].cpu().contiguous() for tensor in (batch.rows, batch.seq_lens))
    slots = torch.arange(rows.shape[0])
    pages = torch.zeros(-(-rows.shape[0] // PAGE), batch.cache.shape[1], dtype=torch.uint8)
    store_decode(
        rows,
        batch.norm_weight.cpu(),
        batch.rope_table.cpu(),
        lengths,
        slots,
        pages,
        codec=batch.codec,
        page_size=batch.page_size,
        ratio=batch.compress_ratio,
        norm_eps=batch.norm_eps,
    )
    layout = page_layout(batch.codec, Geometry(), batch.conventions.page_order)
    want = _records(pages, slots, page_addresses(layout, pages.device))

    def judge(done: StoreBatch) -> dict[str, object]:
        got = _records(done.cache, done.slots[::step], page_addresses(layout, done.cache.device)).cpu()
        return {"differing": int((got != want).sum()), "compared": want.numel()}

    return judge


def _records(cache: torch.Tensor, slots: torch.Tensor, addresses: torch.Tensor) -> torch.Tensor:
    page = torch.div(slots, PAGE, rounding_mode="floor")
    return cache[page.unsqueeze(1), addresses[slots % PAGE]]

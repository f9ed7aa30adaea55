"""Top-k and the fused store on a GPU: time and correctness."""

from __future__ import annotations

import numpy as np
import torch

from dsa_crosscheck.compare.device.scoring import FORMATS, HEAD_DIM, PAGE
from dsa_crosscheck.compare.device.timing import graph_seconds
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.variants import scale_arguments, variant_for
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select

STORED = 1 << 20
POSITIONS = 8192


def time_topk(rows: int, keys: int, k: int) -> list[dict[str, object]]:
    """Our exact top-k and ``torch.topk`` on the same rows; ours is checked against the reference."""
    scores = torch.randn(rows, keys, device="cuda")
    lengths = torch.full((rows,), keys, dtype=torch.int32, device="cuda")
    chosen = torch.empty(rows, k, dtype=torch.int32, device="cuda")
    kernel = kernels_for(scores.device).topk
    kernel(scores, lengths, chosen)
    want = select(scores[:2].cpu().numpy(), lengths[:2].cpu().numpy(), k, PRESETS["sglang-v4-fp8"].conventions)
    if not np.array_equal(chosen[:2].cpu().numpy(), want):
        raise RuntimeError(f"top-k of {rows} x {keys}, k = {k} is wrong")
    seconds = {
        "cuda": graph_seconds([lambda: kernel(scores, lengths, chosen)]),
        "torch": graph_seconds([lambda: torch.topk(scores, k, dim=1, sorted=False)], rounds=2),
    }
    common = {"format": "fp32", "stage": "select", "rows": rows, "keys": keys, "k": k}
    return [{"candidate": name, **common, "seconds": value} for name, value in seconds.items()]


def time_store(name: str) -> dict[str, object]:
    """The fused store of 1,048,576 decode rows to shuffled slots."""
    codec = PRESETS[FORMATS[name]].conventions.key
    rows = torch.randn(STORED, HEAD_DIM, device="cuda")
    table = torch.randn(POSITIONS, 64, device="cuda").clamp(-1, 1)
    lengths = (torch.arange(STORED, device="cuda") % (POSITIONS // 4) * 4 + 4).int()
    slots = torch.randperm(STORED, device="cuda")
    cache = torch.zeros(STORED // PAGE, PAGE * codec.record_bytes(HEAD_DIM), dtype=torch.uint8, device="cuda")
    kernel = kernels_for(rows.device).store_decode
    export = variant_for("time_store", "key", codec).export
    weight = torch.ones(HEAD_DIM, device="cuda")
    floor, reciprocal = scale_arguments(codec)
    seconds = graph_seconds(
        [lambda: kernel(rows, weight, table, lengths, slots, cache, export, floor, reciprocal, 4, PAGE, 1e-6)]
    )
    moved = STORED * (4 * HEAD_DIM + codec.record_bytes(HEAD_DIM) + 4 + 8)
    return {
        "candidate": "cuda",
        "format": name,
        "stage": "store",
        "rows": STORED,
        "keys": STORED,
        "seconds": seconds,
        "bytes": moved,
        "bytes_per_second": moved / seconds,
    }

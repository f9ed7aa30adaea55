"""Peak memory of scoring on a GPU, measured: the streaming kernel beside the unfused path."""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.candidates.kernels import Cuda
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.device.scoring import FORMATS, HEAD_DIM, HEADS, PAGE
from dsa_crosscheck.reference.presets import PRESETS


def measure_memory(path: str, name: str, rows: int, keys: int) -> dict[str, object]:
    """Bytes that one scoring call takes beyond its inputs: at the peak, and in its largest allocation.

    All rows belong to one request. ``path`` is ``cuda`` or ``unfused``. ``torch.OutOfMemoryError``
    where the device is too small.
    """
    conventions = PRESETS[FORMATS[name]].conventions
    candidate = (Cuda if path == "cuda" else Unfused)(conventions)
    pages = -(-keys // PAGE)
    inputs = (
        torch.zeros(rows, HEADS, conventions.query.value_bytes(HEAD_DIM), dtype=torch.uint8, device="cuda"),
        torch.ones(rows, HEADS, device="cuda"),
        torch.zeros(pages, PAGE * conventions.key.record_bytes(HEAD_DIM), dtype=torch.uint8, device="cuda"),
        torch.arange(pages, device="cuda").int()[None],
        torch.zeros(rows, dtype=torch.int32, device="cuda"),
        torch.full((rows,), keys, dtype=torch.int32, device="cuda"),
    )
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    scores = candidate.score(*inputs)
    torch.cuda.synchronize()
    history = torch.cuda.memory._snapshot()["device_traces"]
    torch.cuda.memory._record_memory_history(enabled=None)
    allocated = [e["size"] for trace in history for e in trace if e["action"] == "alloc"]
    return {
        "path": path,
        "format": name,
        "rows": rows,
        "keys": keys,
        "peak_bytes": torch.cuda.max_memory_allocated() - before,
        "largest_bytes": max(allocated),
        "output_bytes": scores.numel() * 4,
    }

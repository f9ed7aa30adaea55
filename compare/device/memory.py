"""Peak memory of scoring on a GPU, measured: the streaming kernel beside the unfused path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dsa_crosscheck.compare.candidates.kernels import Cuda
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.device.predicted import predicted_bytes
from dsa_crosscheck.compare.device.sizes import CONVENTIONS, HEAD_DIM, HEADS, PAGE
from dsa_crosscheck.reference.conventions import Conventions

PATHS: dict[str, Callable[[Conventions], Any]] = {"cuda": Cuda, "unfused": Unfused}
SIZES = ((6144, 5632), (1024, 32768), (1024, 262144))
"""Rows and keys: the sizes at which the unfused path first failed its users, then 131,072 and 1,048,576 tokens."""
FORMAT = "fp8"
HEADROOM = 1.1
"""Share of the prediction that must be free: an allocator rounds sizes up."""


def measure_all() -> dict[str, list[dict[str, Any]]]:
    """``memory``: what was measured; ``not_run``: paths and sizes whose prediction does not fit what is free."""
    found: dict[str, list[dict[str, Any]]] = {"memory": [], "not_run": []}
    for rows, keys in SIZES:
        for path in PATHS:
            predicted, free = predicted_bytes(path, FORMAT, rows, keys), torch.cuda.mem_get_info()[0]
            cell = {"path": path, "format": FORMAT, "rows": rows, "keys": keys, "predicted_bytes": predicted}
            if predicted * HEADROOM > free:
                found["not_run"].append(cell | {"free_bytes": free})
                continue
            found["memory"].append(cell | measure(path, FORMAT, rows, keys))
            torch.cuda.empty_cache()
    return found


def measure(path: str, format_name: str, rows: int, keys: int) -> dict[str, int]:
    """Bytes that one scoring call takes beyond its inputs: at the peak, and in its largest allocation.

    All rows belong to one request. ``torch.OutOfMemoryError`` where the device is too small.
    """
    conventions = CONVENTIONS[format_name]
    candidate = PATHS[path](conventions)
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
    try:
        scores = candidate.score(*inputs)
        torch.cuda.synchronize()
        history = torch.cuda.memory._snapshot()["device_traces"]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    allocated = [e["size"] for trace in history for e in trace if e["action"] == "alloc"]
    return {
        "peak_bytes": torch.cuda.max_memory_allocated() - before,
        "largest_bytes": max(allocated),
        "output_bytes": scores.numel() * 4,
    }


def render(record: dict[str, Any]) -> str:
    """A line for each path and size."""
    lines = [
        f"{e['path']:8} {e['rows']:,} x {e['keys']:,}   peak {e['peak_bytes']:,}   predicted {e['predicted_bytes']:,}"
        for e in record["memory"]
    ]
    lines += [
        f"{e['path']:8} {e['rows']:,} x {e['keys']:,}   not run: predicted {e['predicted_bytes']:,}, "
        f"free {e['free_bytes']:,}"
        for e in record["not_run"]
    ]
    return "\n".join(lines)

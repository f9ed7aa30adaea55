"""What the profiler watches: our kernels at the sizes whose targets name a peer, each launched once.

Rows of 262,144 scores are selected from in one launch only where clusters of 16 blocks fit the GPU.
``python -m dsa_crosscheck.compare.device.profiled`` prints the name of each launch before it starts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from dsa_crosscheck.compare.device.batches import ScoreShape, SelectShape, StoreShape
from dsa_crosscheck.compare.device.contenders import contenders_named
from dsa_crosscheck.compare.device.stages import STAGES
from dsa_crosscheck.compare.device.table import shape_of

CASES: tuple[tuple[str, str, Any], ...] = (
    ("score", "fp8", ScoreShape(256, 32768)),
    ("score", "fp8", ScoreShape(64, 8192)),
    ("score", "fp8", ScoreShape(1, 131072)),
    ("score", "fp8", ScoreShape(64, 32768, next_n=2)),
    ("score", "bf16", ScoreShape(256, 32768)),
    ("score", "fp4", ScoreShape(256, 32768)),
    ("store", "fp8", StoreShape(1 << 20)),
    ("store", "bf16", StoreShape(1 << 20)),
    ("store", "fp4", StoreShape(1 << 20)),
    ("select", "fp32", SelectShape(256, 32768, 512)),
    ("select", "fp32", SelectShape(256, 32768, 2048)),
    ("select", "fp32", SelectShape(8, 262144, 512)),
    ("select", "fp32", SelectShape(8, 262144, 2048)),
)


def names() -> Iterator[str]:
    """Stage, format and sizes of each case."""
    for stage, kind, shape in CASES:
        yield f"{stage} {kind} {shape_of({'stage': stage, **shape.entry()})}"


def run(device: str) -> None:
    """Launch every case once."""
    stages = {stage.name: stage for stage in STAGES}
    [ours] = contenders_named(["cuda"])
    for name, (stage, kind, shape) in zip(names(), CASES, strict=True):
        launch = ours.plan(stage, stages[stage].batch(kind, shape, 0, device))
        print(f"case {name}", flush=True)
        launch()
        torch.cuda.synchronize()


if __name__ == "__main__":
    run("cuda")

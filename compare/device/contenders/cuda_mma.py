"""The project's scorer by the instructions that every GPU's matrix unit has; on CPU tensors there is none."""

from __future__ import annotations

from collections.abc import Callable

from dsa_crosscheck.compare.device.batches import ScoreBatch
from dsa_crosscheck.compare.device.contenders.cuda import score_by

STAGES = {"score": ("fp8", "bf16", "fp4")}


def score(batch: ScoreBatch) -> Callable[[], object]:
    """Paged scores; two rows a request share its keys."""
    return score_by(batch, "mma")

"""``torch.topk``, unordered: which of two equal scores it takes is its own affair."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsa_crosscheck.compare.device.batches import SelectBatch

STAGES = {"select": ("fp32",)}


def select(batch: SelectBatch) -> Callable[[], object]:
    """Indices of the best, as int64 in no order."""

    def launch() -> None:
        batch.selected = torch.topk(batch.scores, batch.k, dim=1, sorted=False).indices

    return launch

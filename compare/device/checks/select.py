"""Selections against the reference's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsa_crosscheck.compare.device.batches import SelectBatch
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select

CHECKED_ROWS = 8


def select_judge(batch: SelectBatch) -> Callable[[SelectBatch], dict[str, object]]:
    """Judge of rows spread over the batch, ``checked_rows`` of them.

    ``wrong_rows``: those that hold other keys than the reference selects, in whatever order; equal scores go
    to the lowest index, so a contender that takes another of two equal keys counts too. ``ordered``: whether
    the keys come in the reference's order, that of their indices.
    """
    rows = np.unique(np.linspace(0, batch.shape.rows - 1, CHECKED_ROWS).astype(np.int64))
    scores, lengths = (tensor[rows].cpu().numpy() for tensor in (batch.scores, batch.lengths))
    want = select(scores, lengths, batch.k, PRESETS["sglang-v4-fp8"].conventions)

    def judge(done: SelectBatch) -> dict[str, object]:
        got = done.selected[rows].cpu().numpy()
        wrong = (np.sort(got, axis=1) != np.sort(want, axis=1)).any(axis=1)
        return {"wrong_rows": int(wrong.sum()), "checked_rows": len(rows), "ordered": bool((got == want).all())}

    return judge

"""Scores against float64, in units of the derived bound of each accumulator model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dsa_crosscheck.compare.device.batches import ScoreBatch
from dsa_crosscheck.compare.device.sizes import HEAD_DIM, PAGE
from dsa_crosscheck.reference.cache import key_layout
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.key_source import CachedKeys
from dsa_crosscheck.reference.models import MODELS
from dsa_crosscheck.reference.query import query_values
from dsa_crosscheck.reference.score import score
from dsa_crosscheck.reference.score_bound import KeySizes, score_bound

CHECKED_ROWS = 4
CHECKED_PAGES = 64
"""Of a row's start, middle and end each."""
JUDGED_BY = ("ieee-fp32", "tensor-core-fp8")


def score_judge(batch: ScoreBatch) -> Callable[[ScoreBatch], dict[str, object]]:
    """Judge of rows spread over the batch, 4,096 keys of the start, the middle and the end of each:
    ``worst_error_over_bound`` for each model.

    NaN where a score is NaN.
    """
    c, s = batch.conventions, batch.shape
    rows = np.unique(np.linspace(0, s.rows - 1, CHECKED_ROWS).astype(np.int64))
    chosen = checked_pages(s.keys)
    columns = (chosen[:, None] * PAGE + np.arange(PAGE)).ravel()
    columns = columns[columns < s.keys]
    pages = batch.block_table.cpu().numpy()[batch.request_of_row.cpu().numpy()[rows]][:, chosen]
    cache = batch.cache[torch.from_numpy(pages.ravel().astype(np.int64)).to(batch.cache.device)].cpu().numpy()
    request = np.arange(rows.size, dtype=np.int32)
    table = np.arange(pages.size, dtype=np.int32).reshape(pages.shape)
    keys = CachedKeys(cache, key_layout(c.key, Geometry(), c.page_order), c.key, table, HEAD_DIM)
    query = query_values(batch.codes[rows].cpu().numpy(), c, HEAD_DIM)
    weights = batch.weights[rows].cpu().numpy().astype(np.float64)
    lengths = np.full(rows.size, columns.size, np.int32)
    exact = score(query, weights, keys, request, lengths, relu=True, rounding="none")
    vectors = [keys.block(row, 0, columns.size) for row in range(rows.size)]
    sizes = KeySizes(
        np.stack([np.linalg.norm(v, axis=-1) for v in vectors]), np.stack([np.abs(v).max(axis=-1) for v in vectors])
    )
    bounds = {name: score_bound(exact, query, weights, sizes, MODELS[name]) for name in JUDGED_BY}

    def judge(done: ScoreBatch) -> dict[str, object]:
        error = np.abs(done.scores[rows].cpu().numpy()[:, columns].astype(np.float64) - exact.values)
        return {"worst_error_over_bound": {name: float((error / bound).max()) for name, bound in bounds.items()}}

    return judge


def checked_pages(keys: int) -> np.ndarray:
    """Which pages of a row of ``keys`` are judged, ascending; the last may be partial."""
    pages = -(-keys // PAGE)
    starts = (0, (pages - CHECKED_PAGES) // 2, pages - CHECKED_PAGES)
    return np.unique(np.concatenate([np.arange(max(0, at), min(pages, max(0, at) + CHECKED_PAGES)) for at in starts]))

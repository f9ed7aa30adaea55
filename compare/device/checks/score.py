"""Scores against float64, in units of the derived bound of each accumulator model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsa_crosscheck.compare.device.batches import ScoreBatch
from dsa_crosscheck.compare.device.sizes import HEAD_DIM, PAGE
from dsa_crosscheck.reference.cache import key_layout
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.key_source import CachedKeys
from dsa_crosscheck.reference.models import MODELS
from dsa_crosscheck.reference.query import query_values
from dsa_crosscheck.reference.score import score
from dsa_crosscheck.reference.score_bound import KeySizes, score_bound

CHECKED_KEYS = 4096
JUDGED_BY = ("ieee-fp32", "tensor-core-fp8")


def score_judge(batch: ScoreBatch) -> Callable[[ScoreBatch], dict[str, object]]:
    """Judge of the first and the last row's first 4,096 keys: ``worst_error_over_bound`` for each model.

    NaN where a score is NaN.
    """
    c, s = batch.conventions, batch.shape
    rows = np.array([0, s.rows - 1])
    seen = min(s.keys, CHECKED_KEYS)
    pages = batch.block_table[batch.request_of_row[rows].long(), : -(-seen // PAGE)]
    cache = batch.cache[pages.flatten().long()].cpu().numpy()
    table = np.arange(cache.shape[0], dtype=np.int32).reshape(2, -1)
    keys = CachedKeys(cache, key_layout(c.key, Geometry(), c.page_order), c.key, table, HEAD_DIM)
    query = query_values(batch.codes[rows].cpu().numpy(), c, HEAD_DIM)
    weights = batch.weights[rows].cpu().numpy().astype(np.float64)
    request = np.arange(2, dtype=np.int32)
    exact = score(query, weights, keys, request, np.full(2, seen, np.int32), relu=True, rounding="none")
    vectors = [keys.block(row, 0, seen) for row in (0, 1)]
    sizes = KeySizes(
        np.stack([np.linalg.norm(v, axis=-1) for v in vectors]), np.stack([np.abs(v).max(axis=-1) for v in vectors])
    )
    bounds = {name: score_bound(exact, query, weights, sizes, MODELS[name]) for name in JUDGED_BY}

    def judge(done: ScoreBatch) -> dict[str, object]:
        error = np.abs(done.scores[rows][:, :seen].cpu().numpy().astype(np.float64) - exact.values)
        return {"worst_error_over_bound": {name: float((error / bound).max()) for name, bound in bounds.items()}}

    return judge

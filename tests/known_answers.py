"""Loads the known answers of ``data/known_answers``: indexer cases computed in 40-digit arithmetic."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data" / "known_answers"
SEEDS = (0, 1, 2)


@functools.cache
def load(seed: int) -> dict[str, Any]:
    """The case as nested dicts; every stored array is a read-only numpy array of its dtype and shape."""
    return _decoded(json.loads((FOLDER / f"seed{seed}.json").read_text()))


def kv_score(case: dict[str, Any]) -> np.ndarray:
    """Raw projections [tokens, 4 * head_dim] in the reference's column order, float32."""
    i = case["inputs"]
    return np.concatenate([i["kv_overlap"], i["kv"], i["score_overlap"], i["score"]], axis=1)


def _decoded(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if "data" in node:
        raw = base64.b64decode(node["data"])
        return np.frombuffer(raw, np.dtype(node["dtype"]).newbyteorder("<")).reshape(node["shape"])
    return {name: _decoded(child) for name, child in node.items()}

"""Bound on the error of an indexer score under an accumulator model."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.models import FP32_TINY, AccumulatorModel
from dsa_crosscheck.reference.score import Scores


def score_bound(
    scores: Scores, reach: np.ndarray, key_norms: np.ndarray, heads: int, head_dim: int, model: AccumulatorModel
) -> np.ndarray:
    """Bound [rows, n] on |score of an admissible kernel - ``scores.values``|; 0 past a row's length.

    ``scores`` must not be rounded. ``reach`` [rows]: sum over heads of |weight| |query|_2.
    ``key_norms`` [rows, n]: |key|_2. Derivation: a head's product is off by at most
    e |q| |k| (``AccumulatorModel.dot_error``, with sum |q_d k_d| <= |q| |k|), the ReLU does not
    enlarge that, and the weight, head sum and key scale add gamma of their roundings to what is
    then summed. With A = reach |k| and m = sum |w| relu(q . k) (``scores.magnitude``):
    b = A e (1 + g) + m g, where 1 + g = (1 + gamma_(heads + 1)) (1 + product_unit)
    (1 + weighted_unit); the stored score adds score_unit (|s| + b) + score_tiny.
    """
    seen = np.isfinite(scores.values)
    head_sum = model.gamma(model.roundings(heads) + 3)
    grow = (1 + head_sum) * (1 + model.product_unit) * (1 + model.weighted_unit)
    product = reach[:, None] * key_norms * model.dot_error(head_dim)
    tiny = FP32_TINY * (heads + 2) * (head_dim + 2)
    bound = product * grow + scores.magnitude * (grow - 1) + tiny
    stored = model.score_unit * (np.abs(np.where(seen, scores.values, 0.0)) + bound) + model.score_tiny
    return np.where(seen, bound + stored, 0.0)

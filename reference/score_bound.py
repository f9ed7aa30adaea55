"""Bound on the error of an indexer score under an accumulator model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.reference.models import FP32_TINY, AccumulatorModel
from dsa_crosscheck.reference.score import Scores


@dataclass(frozen=True)
class KeySizes:
    """Sizes of the keys that each row sees, float64 [rows, n]: |key|_2 and |key|_max."""

    norms: np.ndarray
    peaks: np.ndarray


def score_bound(
    scores: Scores, query: np.ndarray, weights: np.ndarray, keys: KeySizes, model: AccumulatorModel
) -> np.ndarray:
    """Bound [rows, n] on |score of an admissible kernel - ``scores.values``|; 0 past a row's length.

    ``scores`` must not be rounded; ``query`` [rows, heads, head_dim] and ``weights`` [rows, heads] are
    what they were made from, float64. O(rows x n) memory, no head axis.

    Derivation. A head's product p is off by at most e1 |q|_2 |k|_2 + e2 |q|_max |k|_max + e3 |p|
    (``AccumulatorModel.dot_error``). The ReLU does not enlarge that, and where p < 0 it removes the e3
    part, since |p| itself has to be overcome first (e3 < 1). So sum |w| |error| <= E with

        E = e1 |k|_2 sum |w| |q|_2 + e2 |k|_max sum |w| |q|_max + e3 m,   m = sum |w| relu(p)

    (``scores.magnitude``; |p| for relu(p) without ReLU). What is then summed is at most m + E, and the
    weight, the sum over heads and the key scale meet gamma of their roundings (Higham, lemma 3.1),
    a narrower product or weighted product one more: with
    1 + g = (1 + gamma_(heads + 2)) (1 + product_unit) (1 + weighted_unit),

        b = E (1 + g) + m g + underflow,

    and the stored score adds score_unit (|s| + b) + score_tiny. Underflow: an operation whose result
    is below 2^-126 loses at most that. Three such losses an element (operand times scale, product, sum)
    are multiplied by the other operand, the weight and the key scale, which is at most 1 + |k|_2; two a
    head are not multiplied by the weight. Overflow of a narrow score to infinity is not covered.
    """
    seen = np.isfinite(scores.values)
    heads, dim = query.shape[1:]
    size = np.abs(weights)
    reach = (size * np.linalg.norm(query, axis=-1)).sum(axis=-1)[:, None]
    peak = (size * np.abs(query).max(axis=-1, initial=0.0)).sum(axis=-1)[:, None]
    error = model.dot_error(dim)
    product = error.norms * reach * keys.norms + error.peaks * peak * keys.peaks + error.value * scores.magnitude
    grow = (1 + model.gamma(model.roundings(heads) + 3)) * (1 + model.product_unit) * (1 + model.weighted_unit)
    factor = 1 + 2 * keys.norms
    lost = 3 * dim * (size.sum(axis=-1)[:, None] * factor + reach) + 2 * heads * factor + 1
    bound = (product + FP32_TINY * lost) * grow + scores.magnitude * (grow - 1)
    stored = model.score_unit * (np.abs(np.where(seen, scores.values, 0.0)) + bound) + model.score_tiny
    return np.where(seen, bound + stored, 0.0)

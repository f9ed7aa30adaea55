"""Is an overlap what two unrelated selections would have? Then something is structurally wrong."""

from __future__ import annotations

import numpy as np

MOST_BY_CHANCE = 0.5
"""Rows in which unrelated selections share more than this say nothing."""
DEVIATIONS = 4.0


def chance_note(overlap: np.ndarray, lengths: np.ndarray, topk: int) -> str:
    """A sentence when ``overlap`` [rows] is no better than chance; empty otherwise.

    Two independent selections of k among n keys share k / n of their keys, with the spread of a
    hypergeometric distribution. Judged over all rows in which that is at most ``MOST_BY_CHANCE``: their
    mean overlap must be within ``DEVIATIONS`` standard deviations, which must tell it from half the
    distance to 1.
    """
    n = lengths.astype(np.float64)
    telling = (n > 0) & (topk / np.maximum(n, 1.0) <= MOST_BY_CHANCE)
    if not telling.any():
        return ""
    share = topk / n[telling]
    variance = share * (1 - share) * (1 - share) * n[telling] / (np.maximum(n[telling] - 1, 1) * topk)
    expected, deviation = float(share.mean()), float(np.sqrt(variance.sum())) / share.size
    limit = expected + DEVIATIONS * deviation
    mean = float(overlap[telling].mean())
    if mean > limit or limit > (1 + expected) / 2:
        return ""
    return f"overlap {mean:.2f} is chance level (k / n is {expected:.2f}): a structural fault, not one of precision"

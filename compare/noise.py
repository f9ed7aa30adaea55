"""What a format costs, measured in the reference alone, and how two sets of scores compare.

Noise (exact mathematics against the conventions) is never mixed with error (the conventions against
a kernel).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.reference.select import select
from dsa_crosscheck.reference.trace import without_rounding


@dataclass(frozen=True)
class Noise:
    """Overlap of the conventions' selection with the exact one (mean and worst row), and the
    signal-to-noise ratio of the scores in dB (inf when they are equal)."""

    overlap_mean: float
    overlap_min: float
    snr_db: float


def format_noise(setup: Setup) -> Noise:
    """The conventions' own selection and scores against exact float64 mathematics."""
    lengths, topk = setup.trace.lengths, setup.inputs.geometry.topk
    exact = setup.exact_scores.values
    ideal = select(exact, lengths, topk, without_rounding(setup.conventions))
    overlap = overlaps(setup.trace.selection, ideal, lengths, topk)
    seen = visible(lengths, exact.shape[1])
    signal = exact[seen]
    difference = setup.trace.scores.values[seen] - signal
    noise, power = float((difference**2).sum()), float((signal**2).sum())
    snr = float("inf") if noise == 0 else 10 * float(np.log10(power / noise)) if power else float("-inf")
    return Noise(*mean_and_worst(overlap), snr)


def overlaps(first: np.ndarray, second: np.ndarray, lengths: np.ndarray, topk: int) -> np.ndarray:
    """Shared keys / keys due of each row, float64 [rows]; 1 for a row that selects none."""
    due = np.minimum(lengths, topk)
    shared = [np.intersect1d(a[:n], b[:n]).size for a, b, n in zip(first, second, due, strict=True)]
    return np.where(due > 0, np.array(shared, np.float64) / np.maximum(due, 1), 1.0)


def mean_and_worst(overlap: np.ndarray) -> tuple[float, float]:
    """Mean and least of the rows' overlaps; 1 and 1 without rows."""
    return (float(overlap.mean()), float(overlap.min())) if overlap.size else (1.0, 1.0)


def calc_diff(x: np.ndarray, y: np.ndarray) -> float:
    """1 - 2 <x, y> / (<x, x> + <y, y>): DeepGEMM's global measure. 0 for two zero arrays."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    total = float((x * x).sum() + (y * y).sum())
    return 1.0 - 2.0 * float((x * y).sum()) / total if total else 0.0


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """Cosine of the angle between two arrays taken as vectors; 1 when either is zero."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    size = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size else 1.0

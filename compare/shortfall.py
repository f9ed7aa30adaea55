"""How far a wrong selection falls short, as exact counts: values below the k-th, the crowd they are in."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.select import ranked


def shortfall(
    chosen: list[np.ndarray], expected: list[np.ndarray], scores: np.ndarray, lengths: np.ndarray, nan: str
) -> str:
    """A sentence on rows whose ``chosen`` keys are not the best; empty when all of them are.

    ``chosen`` and ``expected``: a row's keys; ``scores`` [rows, n]. A selected value counts when it is
    below the least of the expected ones, the k-th largest; an unfilled place has no value. The shortfall
    is the largest distance from it. The bin is what a radix select sees first: every visible value with
    the k-th value's sign and exponent.
    """
    wrong, below, most, crowded, width = 0, 0, 0.0, 0, 0
    for row, (got, want) in enumerate(zip(chosen, expected, strict=True)):
        if not want.size:
            continue
        rank = ranked(scores[row, : int(lengths[row])], nan)
        kth = rank[want].min()
        short = rank[got][rank[got] < kth]
        if not short.size:
            continue
        wrong, below = wrong + 1, below + short.size
        with np.errstate(over="ignore", invalid="ignore"):
            most = max(most, float(kth - short.min()))
        crowd = _same_bin(rank, kth)
        if crowd > crowded:
            crowded, width = crowd, rank.size
    if not wrong:
        return ""
    values = "value is" if below == 1 else "values are"
    return (
        f"{below:,} selected {values} below the k-th largest of the row, by at most {most:.3g}, in {wrong:,} of "
        f"{len(chosen):,} rows; {crowded:,} of {width:,} values share the k-th's sign and exponent"
    )


def _same_bin(rank: np.ndarray, kth: float) -> int:
    _, exponent = np.frexp(rank)
    _, bin_ = np.frexp(kth)
    return int(((exponent == bin_) & (np.signbit(rank) == np.signbit(kth)) & ((rank == 0) == (kth == 0))).sum())

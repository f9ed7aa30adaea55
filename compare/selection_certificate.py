"""Is a returned set of keys one that an admissible kernel could have returned?

With float64 scores s of the shared bytes and a bound b on any admissible kernel's error, some
admissible scores explain a returned set exactly when the largest s - b among the keys left out does
not exceed the smallest s + b among those returned. O(keys) a row; needs no scores of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.verdict import Verdict, overall
from dsa_crosscheck.reference.select import ranked


@dataclass(frozen=True)
class Swap:
    """A key that should have been returned and the one returned in its place.

    ``gap``: by how much the missed key scores higher; ``bound``: the two keys' bounds together.
    """

    row: int
    missed: int
    returned: int
    missed_score: float
    returned_score: float
    gap: float
    bound: float


@dataclass(frozen=True)
class SelectionCertificate:
    """Judgement of a selection, per row.

    ``verdicts``: one a row. ``factors`` [rows]: smallest multiple of the bound that would pass (0
    for identical sets and ties, inf when no multiple does). ``overlaps`` [rows]: shared keys /
    keys to return (1 for a row that returns none). ``swaps``: the widest first, capped;
    ``swap_count``: how many there are.
    """

    verdicts: tuple[Verdict, ...]
    factors: np.ndarray
    overlaps: np.ndarray
    swaps: tuple[Swap, ...]
    swap_count: int

    @property
    def verdict(self) -> Verdict:
        """All rows as one; identical when there are none."""
        return overall(self.verdicts) if self.verdicts else Verdict.IDENTICAL


def certify_selection(
    chosen: list[np.ndarray],
    expected: list[np.ndarray],
    scores: np.ndarray,
    bound: np.ndarray | None,
    lengths: np.ndarray,
    *,
    nan: str,
    max_swaps: int = 20,
) -> SelectionCertificate:
    """Judge ``chosen`` (indices returned a row, contract already checked) against ``expected``.

    ``scores`` and ``bound`` [rows, n]; a bound of None demands exact selection of these scores.
    ``nan`` ranks NaN scores as ``Conventions.topk_nan``; they carry no bound.
    """
    verdicts: list[Verdict] = []
    factors = np.zeros(len(chosen))
    overlaps = np.ones(len(chosen))
    swaps: list[Swap] = []
    count = 0
    for row, (got, want) in enumerate(zip(chosen, expected, strict=True)):
        length = int(lengths[row])
        keys = ranked(scores[row, :length], nan)
        slack = np.zeros(length)
        if bound is not None:
            slack = np.where(np.isfinite(scores[row, :length]), bound[row, :length], 0.0)
        missed = np.setdiff1d(want, got)
        extra = np.setdiff1d(got, want)
        if want.size:
            overlaps[row] = 1.0 - missed.size / want.size
        verdict, factors[row] = _judge(got, missed, keys, slack, bound is not None)
        verdicts.append(verdict)
        count += missed.size
        swaps += _swaps(row, missed, extra, keys, slack, max_swaps)
        swaps = sorted(swaps, key=lambda s: s.bound - s.gap)[:max_swaps]
    return SelectionCertificate(tuple(verdicts), factors, overlaps, tuple(swaps), count)


def _judge(
    got: np.ndarray, missed: np.ndarray, keys: np.ndarray, slack: np.ndarray, bounded: bool
) -> tuple[Verdict, float]:
    if missed.size == 0:
        return Verdict.IDENTICAL, 0.0
    if got.size == 0:
        return Verdict.VIOLATION, np.inf
    left_out = np.ones(keys.size, bool)
    left_out[got] = False
    if keys[left_out].max() <= keys[got].min():
        return Verdict.TIE, 0.0
    if not bounded:
        return Verdict.VIOLATION, np.inf
    factor = _smallest_factor(keys[left_out], slack[left_out], keys[got], slack[got])
    return (Verdict.WITHIN_BOUND if factor <= 1.0 else Verdict.VIOLATION), factor


def _smallest_factor(out: np.ndarray, out_slack: np.ndarray, taken: np.ndarray, taken_slack: np.ndarray) -> float:
    """Root of max(out - f b) - min(taken + f b), convex and decreasing in f: Newton from the left."""
    factor = 0.0
    for _ in range(100):
        i = int(np.argmax(out - factor * out_slack))
        j = int(np.argmin(taken + factor * taken_slack))
        gap, slope = _gap(out[i], taken[j]), out_slack[i] + taken_slack[j]
        if gap <= factor * slope:
            return factor
        # Infinite scores rank as the largest float64, NaN beyond them; no bound reaches either.
        if slope == 0.0 or gap >= np.finfo(np.float64).max:
            return float("inf")
        factor = max(float(gap / slope), float(np.nextafter(factor, np.inf)))
    return factor


def _gap(high: float, low: float) -> float:
    """high - low, where two infinities of one sign, the ranks of NaN, are equal."""
    with np.errstate(over="ignore", invalid="ignore"):
        return 0.0 if high == low else float(high - low)


def _swaps(
    row: int, missed: np.ndarray, extra: np.ndarray, keys: np.ndarray, slack: np.ndarray, limit: int
) -> list[Swap]:
    """Best missed key with worst returned key, and so on inwards."""
    missed = missed[np.argsort(-keys[missed], kind="stable")][:limit]
    extra = extra[np.argsort(keys[extra], kind="stable")][:limit]
    return [
        Swap(row, int(m), int(e), float(keys[m]), float(keys[e]), _gap(keys[m], keys[e]), float(slack[m] + slack[e]))
        for m, e in zip(missed, extra, strict=False)
    ]

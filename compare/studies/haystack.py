"""One row's other keys, and whether a needle among them is selected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Haystack:
    """Scores of a row's own keys in one format, float64 [n]. A needle replaces one key, its score the others' rival."""

    scores: np.ndarray

    @cached_property
    def _ascending(self) -> np.ndarray:
        return np.sort(self.scores)

    def rivals_above(self, needle: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Keys that beat each needle: a larger score, or an equal one at a lower index; the replaced key left out."""
        n = self.scores.size
        above = n - np.searchsorted(self._ascending, needle, side="right")
        above -= self.scores[places] > needle
        equal = np.searchsorted(self._ascending, needle, side="right") - np.searchsorted(
            self._ascending, needle, side="left"
        )
        for at in np.flatnonzero(equal):
            above[at] += int((self.scores[: places[at]] == needle[at]).sum())
        return above

    def kth_of_others(self, places: np.ndarray, k: int) -> np.ndarray:
        """The k-th largest score among the keys other than each replaced one: what a needle has to pass.

        -inf when fewer than k others exist: every key is then selected.
        """
        n = self.scores.size
        if n <= k:
            return np.full(places.shape, -np.inf)
        kth, after = self._ascending[n - k], self._ascending[n - k - 1]
        return np.where(self.scores[places] >= kth, after, kth)

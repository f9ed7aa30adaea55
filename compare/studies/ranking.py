"""How one selection differs from the exact one, a row at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_crosscheck.compare.studies.formats import IDEAL
from dsa_crosscheck.reference.select import select

_ORDERED = replace(IDEAL, topk_order="score")


def best_first(scores: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest of ``scores`` [n], k <= n, best first, equal ones by index.

    The first j of them are the selection for any smaller j.
    """
    return select(scores[None], np.array([scores.size]), k, _ORDERED)[0]


@dataclass(frozen=True)
class Swaps:
    """A selection of k keys against the exact scores.

    ``overlap``: share of the k whose exact score reaches the k-th largest; keys that tie there
    exactly are interchangeable. ``depth_mean``, ``depth_max``: how many ranks the swapped keys lie
    from the boundary, those that came in and those that were lost (0 without a swap).
    ``mass_lost``: with exact scores as logits, the share of the softmax mass of the exact selection
    that the other one misses.
    """

    overlap: float
    depth_mean: float
    depth_max: float
    mass_lost: float


@dataclass(frozen=True)
class ExactRow:
    """One row's exact scores, float64 [n], all visible and finite."""

    scores: np.ndarray

    @cached_property
    def descending(self) -> np.ndarray:
        """The scores, largest first."""
        return np.sort(self.scores)[::-1]

    @cached_property
    def _mass(self) -> np.ndarray:
        """exp(score - largest): softmax numerators that can't overflow."""
        return np.exp(self.scores - self.descending[0])

    @cached_property
    def _mass_of_top(self) -> np.ndarray:
        return np.cumsum(np.exp(self.descending - self.descending[0]))

    def ranks(self, scores: np.ndarray) -> np.ndarray:
        """Number of keys with a larger exact score, for each of ``scores``."""
        return np.searchsorted(-self.descending, -scores, side="left")

    def swaps(self, chosen: np.ndarray) -> Swaps:
        """Compare ``chosen``, the indices of k distinct keys with 1 <= k < n, with the exact top k."""
        k = chosen.size
        kth = self.descending[k - 1]
        values = self.scores[chosen]
        came = values[values < kth]
        unchosen = np.ones(self.scores.size, bool)
        unchosen[chosen] = False
        lost = self.scores[unchosen & (self.scores > kth)]
        # As many keys left as came; those not larger than the k-th were equal to it, at the boundary itself.
        at_boundary = np.ones(max(0, came.size - lost.size))
        depth = np.concatenate([self.ranks(came) + 1 - k, k - self.ranks(lost), at_boundary])
        return Swaps(
            overlap=1.0 - came.size / k,
            depth_mean=float(depth.mean()) if depth.size else 0.0,
            depth_max=float(depth.max(initial=0)),
            mass_lost=max(0.0, 1.0 - float(self._mass[chosen].sum() / self._mass_of_top[k - 1])),
        )

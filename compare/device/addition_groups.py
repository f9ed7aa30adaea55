"""Which elements of a vector a scorer adds at once, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.device.exact_products import HEAD_DIM, score_products

CONFIRMED = 16


def addition_groups(candidate: Any, large: float, small: float) -> list[list[int]] | None:
    """Groups of elements in the order in which they join the running sum.

    ``small`` must be lost beside ``large`` wherever the two meet. Then large at a, -large at i and small at
    j give small exactly when the group of j comes after those of a and i. The groups are read off a = 0 and
    confirmed with an element of each group, of ``CONFIRMED`` where there are more: a tree looks like a
    sequence from one element, not from all. None when no sequence that begins with element 0 explains it.
    """
    groups = find_groups(survives(candidate, 0, large, small))
    if groups is None:
        return None
    place = places(groups)
    for number in np.unique(np.linspace(0, len(groups) - 1, CONFIRMED).astype(int)):
        anchor = groups[number][-1]
        later = place > np.maximum(place, number)[:, None]
        seen = survives(candidate, anchor, large, small)
        alone = np.ones(HEAD_DIM, bool)
        alone[anchor] = False
        if not np.array_equal(seen[np.ix_(alone, alone)], later[np.ix_(alone, alone)]):
            return None
    return groups


def survives(candidate: Any, anchor: int, large: float, small: float) -> np.ndarray:
    """bool [i, j]: whether large at ``anchor``, -large at i and small at j give small; False where they clash."""
    return score_products(candidate, -large, small, (anchor, large)) == small


def find_groups(free: np.ndarray) -> list[list[int]] | None:
    """Groups in order from ``survives`` for the anchor 0, or None when no sequence explains it."""
    others = np.arange(1, free.shape[0])
    after = free[np.ix_(others, others)]
    left = after.sum(axis=1)
    if not np.array_equal(after, left[None, :] < left[:, None]):
        return None
    groups = [others[left == size].tolist() for size in sorted(set(left.tolist()), reverse=True)]
    return [[0, *groups[0]], *groups[1:]]


def places(groups: list[list[int]]) -> np.ndarray:
    """Number of each element's group, int [elements]."""
    place = np.zeros(sum(map(len, groups)), int)
    for number, group in enumerate(groups):
        place[group] = number
    return place

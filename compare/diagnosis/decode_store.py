"""Where a writer put every element: the words of an address-coded case looked up in its cache."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.diagnosis.addresses import Places, describe
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs

SEEDS = 32
FOUND = 0.75
"""Share of elements that must be found somewhere. A writer of other numbers has next to none; one that
moves elements between groups of one scale changes a few of them."""
PAGES = 3


def decode_store(candidate: Any, setup: Setup) -> list[str]:
    """How the candidate arranges the bytes of stored keys, in sentences; empty when as declared.

    The case is stored once a seed, always to the same slots; the bytes of all seeds at one place are a
    word, and so are those that each element should have.
    """
    runs = _setups(setup)
    words, seen = [], []
    for one in runs:
        try:
            _, after = CHECKS["store_keys"].run(candidate, one)
        except CandidateFault as fault:
            return [f"the address-coded case can't be stored: {fault}"]
        words.append(_units(one.trace.records[:, : one.layout.value_bytes], one.conventions.key.spec.bits))
        seen.append(_units(after, one.conventions.key.spec.bits))
    first = runs[0]
    if first.conventions.key.nibbles == "high-even":
        words = [_halves_swapped(word) for word in words]
    stored = np.flatnonzero(first.inputs.slots >= 0)
    wanted = _spelled(np.stack(words))[stored]
    found = _spelled(np.stack(seen)).reshape(-1)
    declared = Places(wanted, first.inputs.slots[stored], first.layout, first.conventions.key)
    observed = _look_up(wanted, found, declared.expected(first.layout.page_order))
    if (observed >= 0).mean() < FOUND:
        return [f"the bytes are no rearrangement: {(observed < 0).mean():.0%} of the elements are found nowhere"]
    sentence = describe(replace(declared, observed=observed), "written to")
    return [sentence] if sentence else []


def _setups(setup: Setup) -> list[Setup]:
    """The case under the setup's conventions, once a seed."""
    return [Setup(inputs, setup.conventions, setup.model) for inputs in _inputs(setup.inputs.geometry)]


@cache
def _inputs(geometry: Geometry) -> list[Inputs]:
    """The case with each seed's letters at the first seed's places."""
    context = PAGES * geometry.page_size * geometry.compress_ratio
    cases = [build_case("address-coded", context=context, rows=1, seed=s, geometry=geometry) for s in range(SEEDS)]
    return [replace(cases[0], pooled=case.pooled) for case in cases]


def _units(array: np.ndarray, bits: int) -> np.ndarray:
    """Bytes as they are, or as nibbles with the low half first."""
    if bits != 4:
        return array
    return np.stack([array & 15, array >> 4], axis=-1).reshape(*array.shape[:-1], -1)


def _halves_swapped(units: np.ndarray) -> np.ndarray:
    """Nibbles of a record in the order of its elements, where the even element is the high half."""
    return units.reshape(*units.shape[:-1], -1, 2)[..., ::-1].reshape(units.shape)


def _spelled(letters: np.ndarray) -> np.ndarray:
    """One uint64 for the letters [seeds, ...] of each place; equal words have equal numbers."""
    keys = np.random.default_rng(0).integers(1, 2**63, letters.shape[0], np.uint64) | np.uint64(1)
    total = np.zeros(letters.shape[1:], np.uint64)
    with np.errstate(over="ignore"):  # modulo 2^64 on purpose
        for key, letter in zip(keys, letters, strict=True):
            total = (total ^ (letter.astype(np.uint64) + np.uint64(1))) * key
            total ^= total >> np.uint64(29)
    return total


def _look_up(wanted: np.ndarray, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Place of each wanted word among ``found``; its expected place where it is there; -1 if nowhere."""
    order = np.argsort(found, kind="stable")
    at = np.minimum(np.searchsorted(found[order], wanted), found.size - 1)
    place = np.where(found[order][at] == wanted, order[at], -1)
    return np.where(found[expected] == wanted, expected, place)

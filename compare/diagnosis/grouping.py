"""Groups that hold all errors: one page, odd rows, the last token of each page, one request."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, exp, lgamma

import numpy as np

from dsa_crosscheck.compare.diagnosis.attributes import Attribute, attributes
from dsa_crosscheck.compare.diagnosis.explanation import Group
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult

LIKELY_BY_CHANCE = 0.01
"""Groups that as many errors, scattered over the units, would all fall into at least this often are
not reported; groups of one kind share it."""
MODULI = (2, 4, 8, 16, 32, 64)
LISTED = 4
"""Most values that a group may be a list of."""
SHOWN = 6


def find_groups(result: StageResult, setup: Setup) -> list[Group]:
    """Groups that hold every wrong element of a line and not every element, the smallest first."""
    if result.wrong is None or not result.wrong.any():
        return []
    if result.unexplained == 1 and result.at:
        return [Group(result.stage, f"the only error is at {result.at}", 1 / result.wrong.size, 1.0)]
    found = []
    for attribute in attributes(result.stage, result.wrong, setup):
        best = min(_groups(attribute), key=lambda entry: entry[1:], default=None)
        if best is not None:
            phrase, share, chance = best
            found.append(Group(result.stage, f"all errors lie in {phrase}", share, chance))
    return sorted(found, key=lambda group: group.share)[:SHOWN]


def _groups(attribute: Attribute) -> Iterator[tuple[str, float, float]]:
    """(phrase, share of the units, chance) of each group of one attribute that is no coincidence."""
    values, wrong = attribute.values, attribute.wrong
    units, errors = values.size, int(wrong.sum())
    if errors == 0 or errors == units:
        return
    if errors == 1:
        # One wrong unit lies in one page, one parity, one request: that is its place, not a pattern.
        if attribute.identity and units > 1:
            yield f"{attribute.label} {values[wrong][0]}", 1 / units, 1 / units
        return
    for phrase, inside, kinds in _predicates(attribute.label, values, values[wrong]):
        size = int(inside.sum())
        if size == units:
            continue
        chance = kinds * _all_inside(units, size, errors)
        if chance < LIKELY_BY_CHANCE:
            yield phrase, size / units, chance


def _predicates(label: str, values: np.ndarray, bad: np.ndarray) -> Iterator[tuple[str, np.ndarray, float]]:
    """(phrase, membership, how many groups of that kind there are), simple kinds first."""
    kinds = np.unique(values)
    found = np.unique(bad)
    if found.size == 1:
        yield f"{label} {found[0]}", values == found[0], kinds.size
        return
    low, high = found[0], found[-1]
    yield f"{label} >= {low}", values >= low, kinds.size
    yield f"{label} <= {high}", values <= high, kinds.size
    yield f"{label} {low} to {high}", (values >= low) & (values <= high), comb(kinds.size, 2)
    for modulus in MODULI:
        if modulus < kinds[-1] and np.unique(found % modulus).size == 1:
            residue = int(found[0] % modulus)
            name = ("even", "odd")[residue] + f" {label}" if modulus == 2 else f"{label} = {residue} modulo {modulus}"
            yield name, values % modulus == residue, modulus
    if found.size <= LISTED:
        names = ", ".join(str(value) for value in found)
        yield f"{label} {names}", np.isin(values, found), comb(kinds.size, found.size)


def _all_inside(units: int, size: int, errors: int) -> float:
    """Chance that ``errors`` different units of ``units`` all fall among ``size`` of them."""
    return exp(_log_choose(size, errors) - _log_choose(units, errors))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)

"""What a scorer's additions keep, measured through its public call: bits, rounding, grouping.

Three kinds of exact sums tell it. L and s are powers of two, s smaller by a factor 2^spread.

- L + s: the score is exact up to some spread, which says how many bits a *result* has.
- L + s - L: exact while s survives beside L, even where no result could hold both. A matrix unit aligns the
  products of one instruction, and the running sum, to the largest and cuts them there; s is untouched when
  its instruction comes after those of L and -L. Which elements share an instruction is read off that.
- L and a fraction of its last bit: which way a result is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.protocol import offers
from dsa_crosscheck.compare.candidates.registry import CandidateError, load
from dsa_crosscheck.compare.device.addition_groups import addition_groups, places
from dsa_crosscheck.compare.device.exact_products import FORMATS, HEAD_DIM, score_products
from dsa_crosscheck.compare.device.rounding_direction import addend_direction, fractions_of_last_bit
from dsa_crosscheck.compare.studies.text_table import text_table
from dsa_crosscheck.reference.presets import PRESETS

LARGE = 2.0**16
WIDEST = 34
"""Spread of the products of two e4m3 powers of two: 2^16 down to 2^-18."""
RESULT_SPREADS = 26
"""More than a float32 score can hold."""


def measure(candidates: Sequence[str]) -> list[dict[str, object]]:
    """A record for each candidate and format of ``FORMATS``; of one that it has no scorer for, why not.

    ``CandidateError`` for an unknown candidate, or one that runs for none of the formats.
    """
    records: list[dict[str, object]] = []
    for name in candidates:
        refusals = []
        for kind, preset in FORMATS.items():
            try:
                candidate = load(name, PRESETS[preset].conventions)
            except CandidateError as error:
                if not isinstance(error.__cause__, Unsupported):
                    raise
                refusals.append(error)
                records.append({"candidate": name, "format": kind, "left_out": str(error)})
                continue
            if not offers(candidate, "score"):
                why = f"candidate {name!r} has no `score`"
                records.append({"candidate": name, "format": kind, "left_out": why})
                continue
            records.append({"candidate": name, "format": kind, **measure_accumulator(candidate)})
        if len(refusals) == len(FORMATS):
            raise refusals[0]
    return records


def measure_accumulator(candidate: Any) -> dict[str, object]:
    """What the additions of ``candidate.score`` keep, for operands of its conventions' format.

    - ``result_bits``: significant bits of L + s, the least over all pairs of elements.
    - ``kept_bits``: of L + s - L, the least over all elements where any are lost; None when none are.
    - ``groups``: elements added at once, in order (``addition_groups``). ``within_bits``, ``between_bits``:
      ``kept_bits`` of elements of one group, and of a running sum carried from group to group; None without
      groups or such elements.
    - ``rounding``: of a result; ``addend_rounding``: of an addend aligned to a larger one of its group
      (``rounding_direction``). None where it could not be seen.
    - ``observations``: how many pairs of elements gave which spread, and what fractions of a last bit became.
    """
    result = _spreads(RESULT_SPREADS, lambda s: score_products(candidate, LARGE, s) - LARGE)
    kept = _spreads(WIDEST, lambda s: score_products(candidate, -LARGE, s, (0, LARGE)))
    lost = (kept >= 0) & (kept < WIDEST)
    groups = addition_groups(candidate, LARGE, LARGE * 2.0**-WIDEST)
    within = between = np.zeros_like(lost)
    order_known = None
    if groups is not None:
        place = places(groups)
        within = lost & (place[:, None] == place)
        between = lost & (place[:, None] > place) & (place > 0)
        order_known = np.maximum(place[:, None], place) < place[-1]
    fractions = fractions_of_last_bit(candidate, LARGE, int(result[result >= 0].min()))
    return {
        "result_bits": _least_bits(result[result >= 0]),
        "kept_bits": _least_bits(kept[lost]),
        "within_bits": _least_bits(kept[within]),
        "between_bits": _least_bits(kept[between]),
        "rounding": fractions.direction(order_known),
        "addend_rounding": addend_direction(candidate, LARGE, int(kept[within].min(initial=WIDEST)), within),
        "groups": groups,
        "observations": {
            "result_spreads": _counts(result[result >= 0]),
            "kept_spreads": _counts(kept[kept >= 0]),
            "within_spreads": _counts(kept[within]),
            "between_spreads": _counts(kept[between]),
            "positive_sum_by_fraction": {str(f): _counts(got) for f, got in fractions.positive.items()},
            "negative_sum": _counts(fractions.negative),
        },
    }


def render(records: Sequence[dict[str, object]]) -> str:
    """A table with a line for each record, and below it what was left out."""
    columns = {
        "result bits": "result_bits",
        "kept": "kept_bits",
        "in a group": "within_bits",
        "between": "between_bits",
        "rounding": "rounding",
        "of addends": "addend_rounding",
    }
    rows = [
        [f"{r['candidate']} {r['format']}", *(_text(r[name]) for name in columns.values()), _sizes(r["groups"])]
        for r in records
        if "left_out" not in r
    ]
    lines = text_table(("scores", *columns, "groups"), rows, 1)
    lines += [f"left out: {r['candidate']} {r['format']}: {r['left_out']}" for r in records if "left_out" in r]
    return "\n".join(lines)


def _spreads(widest: int, scores: Callable[[float], np.ndarray]) -> np.ndarray:
    """Spread up to which ``scores`` of s are s, int [i, j]; -1 where there is no such sum."""
    exact = np.ones((HEAD_DIM, HEAD_DIM), bool)
    count = np.zeros((HEAD_DIM, HEAD_DIM), int)
    for spread in range(1, widest + 1):
        got = scores(LARGE * 2.0**-spread)
        exact &= got == LARGE * 2.0**-spread
        count += exact
    return np.where(np.isnan(got), -1, count)


def _least_bits(spreads: np.ndarray) -> int | None:
    """s is bit number spread + 1 of a number that begins with L."""
    return int(spreads.min()) + 1 if spreads.size else None


def _counts(values: np.ndarray) -> dict[str, int]:
    found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    return {f"{value:g}": int(count) for value, count in zip(found, counts, strict=True)}


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _sizes(groups: object) -> str:
    """``8 x 16`` for eight groups of sixteen elements."""
    if not isinstance(groups, list):
        return "no sequence"
    sizes = sorted({len(group) for group in groups})
    return f"{len(groups)} x {' or '.join(map(str, sizes))}"

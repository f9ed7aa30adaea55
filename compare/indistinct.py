"""Inputs on which a kernel that mixes up its rows, or its keys, would go unnoticed."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.setup import Setup


def indistinct(setup: Setup) -> str:
    """Why the inputs cannot tell rows or keys apart, or an empty string.

    Rows count that see a key: at least two of them, all with the same query codes and head weights.
    Keys count that some row sees: at least two of them, all with the same stored bytes.
    """
    inputs, lengths = setup.inputs, setup.trace.lengths
    _, codes, weights = setup.scorer_input
    rows = lengths > 0
    if rows.sum() > 1 and _all_equal(codes[rows]) and _all_equal(weights[rows]):
        return "the inputs cannot tell rows apart: every query is the same"
    longest = np.zeros(inputs.key_counts.size, np.int64)
    np.maximum.at(longest, inputs.request_of_row, lengths)
    seen = (inputs.slots >= 0) & (inputs.key_index < longest[inputs.key_request])
    if seen.sum() > 1 and _all_equal(setup.trace.records[seen]):
        return "the inputs cannot tell keys apart: every visible key is the same"
    return ""


def _all_equal(array: np.ndarray) -> bool:
    return bool((array == array[:1]).all())

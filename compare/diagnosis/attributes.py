"""What each wrong element of a line has in common with others: its page, request, row, position, writer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.scores import visible


@dataclass(frozen=True)
class Attribute:
    """One number a unit (a key, a row, a dim, ...) of a line.

    ``label``: its name; ``values`` int64 [units]; ``wrong`` bool [units]: the unit has an error.
    ``identity``: the label names the unit itself, so that one wrong unit is worth naming.
    """

    label: str
    values: np.ndarray
    wrong: np.ndarray
    identity: bool = False


def attributes(line: str, wrong: np.ndarray, setup: Setup) -> list[Attribute]:
    """Attributes of the elements of ``line``, whose wrong ones are marked in its own axes."""
    inputs = setup.inputs
    if line in ("key scales", "key codes"):
        stored = np.flatnonzero(inputs.slots >= 0)
        return [*_of_keys(stored, _any(wrong, 1), setup), *_of_places(line, _any(wrong, 0))]
    if line == "run: keys":
        return [*_of_keys(np.arange(inputs.keys), _any(wrong, 1), setup), *_of_places(line, _any(wrong, 0))]
    if line in ("query codes", "query scales", "head weights", "run: query"):
        rows = _of_rows(_any(wrong.reshape(wrong.shape[0], -1), 1), setup)
        others = tuple(axis for axis in range(wrong.ndim) if axis != 1)
        heads = Attribute("head", np.arange(wrong.shape[1]), _any(wrong, others), True)
        places = _of_places(line, _any(wrong, (0, 1))) if wrong.ndim > 2 else []
        return [*rows, heads, *places]
    if line in ("scores", "run: scores", "selection", "end to end"):
        return _of_scores(wrong, setup)
    if line == "cache bytes":
        return [
            Attribute("physical page", np.arange(wrong.shape[0]), _any(wrong, 1), True),
            Attribute("byte of the page", np.arange(wrong.shape[1]), _any(wrong, 0), True),
        ]
    return [
        Attribute("group", np.arange(wrong.shape[0]), _any(wrong, 1), True),
        Attribute("dim", np.arange(wrong.shape[1]), _any(wrong, 0), True),
    ]


def _any(mask: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    return np.asarray(mask.any(axis=axis))


def _of_keys(keys: np.ndarray, wrong: np.ndarray, setup: Setup) -> list[Attribute]:
    """By physical page, request, place in the page, index, and place in the list of keys to store."""
    inputs = setup.inputs
    page, offset = np.divmod(inputs.slots[keys], inputs.geometry.page_size)
    return [
        Attribute("request", inputs.key_request[keys].astype(np.int64), wrong),
        Attribute("physical page", page, wrong),
        Attribute("token of its page", offset, wrong),
        Attribute("key", inputs.key_index[keys], wrong, True),
        Attribute("writer (place in the plan)", keys, wrong),
    ]


def _of_places(line: str, wrong: np.ndarray) -> list[Attribute]:
    label = "scale group" if line.endswith("scales") else "dim"
    return [Attribute(label, np.arange(wrong.size), wrong, True)]


def _of_rows(wrong: np.ndarray, setup: Setup) -> list[Attribute]:
    inputs = setup.inputs
    return [
        Attribute("row", np.arange(inputs.rows), wrong, True),
        Attribute("row's request", inputs.request_of_row.astype(np.int64), wrong),
        Attribute("row's position modulo the ratio", inputs.query_positions % inputs.geometry.compress_ratio, wrong),
    ]


def _of_scores(wrong: np.ndarray, setup: Setup) -> list[Attribute]:
    """Rows, the physical slots that visible columns stand for, and how far each is from the row's newest key."""
    inputs, size = setup.inputs, setup.inputs.geometry.page_size
    lengths = setup.trace.lengths
    seen = visible(lengths, wrong.shape[1])
    row, column = np.nonzero(seen)
    page = inputs.block_table[inputs.request_of_row[row], column // size].astype(np.int64)
    slot, unit = np.unique(page * size + column % size, return_inverse=True)
    errors = np.zeros(slot.size, bool)
    errors[unit[wrong[seen]]] = True
    index = np.zeros(slot.size, np.int64)
    index[unit] = column
    age, distance = np.unique(lengths[row] - 1 - column, return_inverse=True)
    aged = np.zeros(age.size, bool)
    aged[distance[wrong[seen]]] = True
    return [
        *_of_rows(_any(wrong & seen, 1), setup),
        Attribute("physical page", slot // size, errors),
        Attribute("token of its page", slot % size, errors),
        Attribute("key", index, errors, True),
        Attribute("distance from the row's newest key", age, aged, True),
    ]

"""Keys that a row should never have returned: of another request, not yet visible, on no page of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_crosscheck.compare.physical import NOBODY, UNREACHABLE, Located
from dsa_crosscheck.reference.conventions import PADDING_VALUES
from dsa_crosscheck.reference.inputs import Inputs


def foreign_keys(located: Located, lengths: np.ndarray, inputs: Inputs, padding: str) -> tuple[str, ...]:
    """Sentences about slots that hold such keys: those due, the first min(topk, length) of a row.

    Keys past a row's causal length are also looked for where ``padding`` is due, unless that rule
    itself writes them there. One sentence for each pair of a request and the request whose keys its
    rows returned, then keys past a row's causal length, then slots on unreachable pages. A logical
    index past the keys of its own request names a key of another only if that one is long enough;
    where several are, all of them are named.
    """
    index, counts = located.index.astype(np.int64), inputs.key_counts[inputs.request_of_row]
    due = np.arange(index.shape[1])[None, :] < np.minimum(lengths, index.shape[1])[:, None]
    sentences = list(_of_others(located, index, counts, due, inputs))
    filler = PADDING_VALUES[padding]
    searched = due if filler is None else due | (index != filler)
    hidden = searched & (index >= lengths[:, None]) & (index < counts[:, None])
    if hidden.any():
        row = int(np.argmax(hidden.any(axis=1)))
        first = int(index[row][hidden[row]][0])
        sentences.append(
            f"{int(hidden.sum())} slots hold keys beyond the row's causal length: row {row} at position "
            f"{inputs.query_positions[row]} selected key {first} and sees {lengths[row]}"
            f"{_not_causal(first, int(inputs.query_positions[row]), inputs.geometry.compress_ratio)}"
        )
    if located.owner is not None:
        lost = due & (index == UNREACHABLE) & (located.owner == NOBODY)
        if lost.any():
            row = int(np.argmax(lost.any(axis=1)))
            sentences.append(f"{int(lost.sum())} slots lie on unreachable pages, first in row {row}")
    return tuple(sentences)


def _of_others(
    located: Located, index: np.ndarray, counts: np.ndarray, due: np.ndarray, inputs: Inputs
) -> Iterator[str]:
    for request in np.unique(inputs.request_of_row):
        mine = due & (inputs.request_of_row == request)[:, None]
        if located.owner is not None:
            for other in np.unique(located.owner[mine & (located.owner != NOBODY)]):
                taken = mine & (located.owner == other)
                yield f"request {request} selected keys of request {other}: {_size(taken)}"
            continue
        past = mine & (index >= counts[:, None]) & (index < inputs.key_counts.max(initial=0))
        if past.any():
            others = np.flatnonzero(inputs.key_counts > int(index[past].min()))
            names = " or ".join(str(int(other)) for other in others if other != request)
            yield f"request {request} selected keys of request {names}: {_size(past)}"


def _not_causal(key: int, position: int, ratio: int) -> str:
    """Which tokens after ``position`` the key is made of; empty when there are none."""
    first, last = max(position + 1, key * ratio), (key + 1) * ratio - 1
    if first > last:
        return ""
    tokens = f"token {first}" if first == last else f"tokens {first} to {last}"
    return f"; key {key} depends on {tokens}: not causal"


def _size(taken: np.ndarray) -> str:
    rows = int(taken.any(axis=1).sum())
    return f"{int(taken.sum())} slots in {rows} row{'s' if rows > 1 else ''}"

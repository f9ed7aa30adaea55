"""A part of a comparison that fails as the whole does, small enough to be judged many times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsa_crosscheck.compare.candidates.protocol import FUSED
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.inputs import Inputs

KEYS = 128
ROWS = 8
QUERY_ROWS = 2


def reduced(evidence: Evidence, setup: Setup, method: str) -> tuple[Evidence, Setup]:
    """Evidence and setup of a few pages (``KEYS`` keys) or rows (``ROWS``; of codes ``QUERY_ROWS``).

    The worst of them, and at least one that is right if there is one. Selections from given scores
    are cheap and are kept whole, as is what a candidate did not produce.
    """
    if method == "store_keys" and evidence.has(method):
        return _pages(evidence, setup)
    if method in ("encode_query", "score") and evidence.has(method):
        return _rows(evidence, setup, method)
    if method == FUSED and evidence.shown is not None:
        return _short_rows(evidence, setup, evidence.shown)
    return evidence, setup


def few_inputs(inputs: Inputs, method: str) -> Inputs:
    """Inputs that are cheap to run ``method`` on again: the first pages, or evenly spaced rows."""
    if method == "store_keys":
        pages = np.unique(inputs.slots[inputs.slots >= 0] // inputs.geometry.page_size)
        return _on_pages(inputs, pages[: max(1, KEYS // inputs.geometry.page_size)])
    if method in ("encode_query", "score"):
        return with_rows(inputs, np.unique(np.linspace(0, inputs.rows - 1, min(ROWS, inputs.rows)).astype(int)))
    return inputs


def with_rows(inputs: Inputs, rows: np.ndarray) -> Inputs:
    """The same keys, searched by some of the rows."""
    return replace(
        inputs,
        query=inputs.query[rows],
        gate=inputs.gate[rows],
        query_positions=inputs.query_positions[rows],
        request_of_row=inputs.request_of_row[rows],
    )


def worst_rows(evidence: Evidence, method: str, rows: int, count: int = ROWS) -> np.ndarray:
    """Rows with the most wrong elements and one with the fewest; ascending."""
    return _extremes(_row_errors(evidence, method, rows), count)


def _row_errors(evidence: Evidence, method: str, rows: int) -> np.ndarray:
    """Wrong elements of each row over a method's lines, int64 [rows]."""
    errors = np.zeros(rows, np.int64)
    for result in evidence.results:
        mask = result.wrong
        if evidence.method(result.stage) == method and mask is not None and result.stage != "run: keys":
            errors += mask.reshape(rows, -1).sum(axis=1)
    return errors


def _rows(evidence: Evidence, setup: Setup, method: str) -> tuple[Evidence, Setup]:
    rows = worst_rows(evidence, method, setup.inputs.rows, QUERY_ROWS if method == "encode_query" else ROWS)
    few = Setup(with_rows(setup.inputs, rows), setup.conventions, setup.model)
    width = int(few.trace.lengths.max(initial=0))
    kept = tuple(array[rows] for array in evidence.outputs[method])
    if method == "score":
        kept = tuple(np.ascontiguousarray(array[:, :width]) for array in kept)
    return replace(evidence, outputs={method: kept}), few


def _short_rows(evidence: Evidence, setup: Setup, shown: dict[str, np.ndarray]) -> tuple[Evidence, Setup]:
    """The shortest of the failing rows, and no more keys than they and a longer causal rule can see."""
    inputs, lengths = setup.inputs, setup.trace.lengths
    errors = _row_errors(evidence, FUSED, inputs.rows)
    order = np.lexsort((lengths, errors == 0))
    rows = np.sort(order[:ROWS])
    longest = np.zeros(inputs.key_counts.size, np.int64)
    np.maximum.at(longest, inputs.request_of_row[rows], lengths[rows] + 1)
    kept = inputs.key_index < longest[inputs.key_request]
    few = with_rows(inputs, rows)
    few = replace(
        few,
        pooled=inputs.pooled[kept],
        key_index=inputs.key_index[kept],
        key_request=inputs.key_request[kept],
        slots=inputs.slots[kept],
    )
    part = {name: array[kept] if name == "keys" else array[rows] for name, array in shown.items()}
    return replace(evidence, shown=part), Setup(few, setup.conventions, setup.model)


def _pages(evidence: Evidence, setup: Setup) -> tuple[Evidence, Setup]:
    before, after = evidence.outputs["store_keys"]
    inputs = setup.inputs
    stored = inputs.slots >= 0
    pages = np.unique(inputs.slots[stored] // inputs.geometry.page_size)
    expected = before.copy()
    expected[pages] = setup.trace.cache[pages]
    errors = (after[pages] != expected[pages]).sum(axis=1)
    chosen = pages[_extremes(errors, max(1, KEYS // inputs.geometry.page_size))]
    few = Setup(_on_pages(inputs, chosen), setup.conventions, setup.model)
    return replace(evidence, outputs={"store_keys": (before[chosen], after[chosen])}), few


def _on_pages(inputs: Inputs, pages: np.ndarray) -> Inputs:
    """The keys stored on ``pages``, which are numbered anew in that order."""
    size = inputs.geometry.page_size
    page = inputs.slots // size
    kept = (inputs.slots >= 0) & np.isin(page, pages)
    number = np.full(inputs.pages + 1, -1, np.int64)
    number[pages] = np.arange(pages.size)
    return replace(
        inputs,
        pages=int(pages.size),
        pooled=inputs.pooled[kept],
        key_index=inputs.key_index[kept],
        key_request=inputs.key_request[kept],
        slots=number[page[kept]] * size + inputs.slots[kept] % size,
        block_table=number[inputs.block_table].astype(np.int32),
    )


def _extremes(errors: np.ndarray, count: int) -> np.ndarray:
    """Places of the ``count - 1`` largest numbers and the smallest one, ascending; all when few."""
    if errors.size <= count:
        return np.arange(errors.size)
    order = np.argsort(-errors, kind="stable")
    most = order[: max(1, count - 1)]
    return np.unique(np.append(most, order[-1]) if count > 1 else most)

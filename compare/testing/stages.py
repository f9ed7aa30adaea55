"""Assertions for those who have one stage: arrays in, no candidate needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS
from dsa_crosscheck.compare.stages.run import END_TO_END, judge_fused
from dsa_crosscheck.compare.stages.selection import judge_selection
from dsa_crosscheck.compare.testing.arrays import as_numpy
from dsa_crosscheck.compare.testing.case import Case
from dsa_crosscheck.compare.testing.conclusion import conclude
from dsa_crosscheck.compare.testing.one_stage import Judged, report_of, setup_of
from dsa_crosscheck.compare.testing.settings import active
from dsa_crosscheck.reference.cache import read_records, write_records
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs

SOURCES = ("scores", "cache", "inputs")
"""What a selection may be made from."""
SWAPS = 20


def assert_scores(
    scores: Any, case: Case | Inputs, *, preset: str | Conventions | None = None, bound: str | None = None
) -> None:
    """Fail unless ``scores`` are those of the fixture's cache bytes, query codes and head weights.

    ``scores`` float32 [rows, at least the longest length] (or half-width floats): torch, numpy or JAX,
    for ``case["cache"]``, ``case["query.codes"]`` and ``case["scorer.weights"]``; of ``Inputs``, for the
    same of a ``Trace`` under ``preset``. What lies past a row's length is not read; NaN where the
    reference has a number fails. ``bound``: an accumulator model's name, by default the one that the
    conventions imply.

    Raises ``CrosscheckFailure`` with the reason; ``TypeError`` for another kind of array; ``ValueError``
    for an unknown preset or bound, or ``Inputs`` without a preset.
    """
    __tracebackhide__ = True
    setup = setup_of("assert_scores", case, preset, bound)
    given = as_numpy("assert_scores(scores=...)", scores)

    def judge() -> Judged:
        width = int(setup.trace.lengths.max(initial=0))
        got = given[:, :width] if given.ndim == 2 else given
        outputs = (expect("score", "scores", got, (setup.inputs.rows, width), (np.float32,)),)
        return Judged(CHECKS["score"].judge(outputs, setup), {"score": outputs})

    conclude(report_of("scores", "score", case, setup, judge), setup.inputs, active())


def assert_selection(
    selection: Any,
    case: Case | Inputs,
    *,
    made_from: str = "scores",
    preset: str | Conventions | None = None,
    bound: str | None = None,
) -> None:
    """Fail unless ``selection`` is one that a right selector, or a right kernel, could have returned.

    ``selection`` int32 or int64 [rows, topk]: torch, numpy or JAX, keys within each row's request and then
    padding. ``made_from``: ``scores``, the float32 scores ``case["selector.scores"]``, whose k largest it
    must be, up to equal ones; ``cache``, scores of the kernel's own of the fixture's cache bytes and query
    codes; ``inputs``, everything of the kernel's own. The last two are judged by ``bound``, an accumulator
    model's name, by default the one that the conventions imply; the first knows no bound.

    Raises as ``assert_scores``; ``ValueError`` also for an unknown ``made_from``, or a bound for ``scores``.
    """
    __tracebackhide__ = True
    if made_from not in SOURCES:
        raise ValueError(f"`assert_selection(made_from=...)` should be one of {SOURCES}, got {made_from!r}")
    if made_from == "scores" and bound is not None:
        raise ValueError(f"`assert_selection(bound=...)` should be None for a selection from scores, got {bound!r}")
    setup = setup_of("assert_selection", case, preset, bound)
    given = as_numpy("assert_selection(selection=...)", selection)

    def judge() -> Judged:
        shape = (setup.inputs.rows, setup.inputs.geometry.topk)
        return _judged(expect("select", "indices", given, shape, (np.int32, np.int64)), made_from, setup)

    conclude(report_of("selection", "select", case, setup, judge), setup.inputs, active())


def assert_cache_bytes(
    cache: Any,
    case: Case | Inputs,
    *,
    before: Any = None,
    preset: str | Conventions | None = None,
    bound: str | None = None,
) -> None:
    """Fail unless ``cache`` holds the keys of the fixture, every code one that float32 could have stored.

    ``cache`` uint8 [pages, page_bytes]: torch, numpy or JAX, after storing ``case["inputs.pooled"]``.
    ``before``: the cache as it was, of the same kind; then every byte that belongs to no key must be as it
    was, and every key must have been written. Without it only the bytes of keys are judged. ``bound``: an
    accumulator model's name, for the stages up to the quantiser.

    Raises as ``assert_scores``.
    """
    __tracebackhide__ = True
    setup = setup_of("assert_cache_bytes", case, preset, bound)
    after = as_numpy("assert_cache_bytes(cache=...)", cache)
    earlier = None if before is None else as_numpy("assert_cache_bytes(before=...)", before)

    def judge() -> Judged:
        shape = (setup.inputs.pages, setup.layout.page_bytes)
        got = expect("store_keys", "its cache", after, shape, (np.uint8,))
        was = _unlike(got, setup) if earlier is None else earlier
        outputs = (expect("store_keys", "the cache before it", was, shape, (np.uint8,)), got)
        return Judged(CHECKS["store_keys"].judge(outputs, setup), {"store_keys": outputs})

    conclude(report_of("cache", "store_keys", case, setup, judge), setup.inputs, active())


def _judged(selection: np.ndarray, made_from: str, setup: Setup) -> Judged:
    if made_from == "scores":
        scores = setup.selector_input[0].astype(np.float64)
        outcome = judge_selection("selection", selection, setup, scores, None, SWAPS)
        return Judged([outcome.result], {"select": (selection,)}, None, outcome)
    if made_from == "cache":
        scores, bounds = setup.shared_scores[0].values, setup.shared_scores[1]
        outcome = judge_selection(END_TO_END, selection, setup, scores, bounds, SWAPS)
        return Judged([outcome.result], {}, None, outcome)
    shown = {"selection": selection}
    lines, outcome = judge_fused(shown, setup, SWAPS)
    return Judged([*lines, outcome.result], {}, shown, outcome)


def _unlike(cache: np.ndarray, setup: Setup) -> np.ndarray:
    """An earlier cache about which nothing is known: every byte of a key was another."""
    slots = setup.inputs.slots[setup.inputs.slots >= 0]
    before = cache.copy()
    write_records(before, setup.layout, ~read_records(cache, setup.layout, slots), slots)
    return before

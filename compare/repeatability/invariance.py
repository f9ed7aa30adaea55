"""A row's result must not depend on which other rows share its batch, or in which order.

Bits are compared first. Where they differ, two runs of admissible arithmetic may lie twice the bound
apart, since the order of a sum may follow the size of the batch; more than that is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, call, expect
from dsa_crosscheck.compare.repeatability.batches import (
    Arrangement,
    arrangements,
    by_position,
    chunk_of,
    renamed,
    with_rows,
)
from dsa_crosscheck.compare.repeatability.bits import bits_differ, first_place
from dsa_crosscheck.compare.repeatability.budget import Budget
from dsa_crosscheck.compare.repeatability.repeats import Produced
from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
from dsa_crosscheck.compare.repeatability.targets import produced_by_run
from dsa_crosscheck.compare.selection_certificate import certify_selection
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.stages.selection import FILLER
from dsa_crosscheck.compare.verdict import Verdict, overall

Rearranged = Callable[[Arrangement, np.ndarray], Produced]
"""Runs the rows of one part of an arrangement; results in the part's order of rows."""


@dataclass
class _Tally:
    """What all arrangements of one method found."""

    what: str
    elements: int = 0
    differing: int = 0
    at: str = ""
    notes: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=lambda: [Verdict.IDENTICAL])

    def add(self, name: str, verdict: Verdict, count: int, at: str, seen: str) -> None:
        self.verdicts.append(verdict)
        self.differing += count
        if not self.at or (verdict.failed and not any(v.failed for v in self.verdicts[:-1])):
            self.at = at
            self.notes = [f"{self.what} depend on the batch ({name}): {seen}"]


def check_invariance(candidate: Any, setup: Setup, outputs: dict[str, Produced]) -> StageResult:
    """One line for every method in ``outputs`` (``score``, ``select``, ``run``), which holds whole-batch results.

    ``IDENTICAL``: equal bits and sets. ``TIE``: sets that differ in keys of equal score.
    ``WITHIN_BOUND``: differences that two admissible runs may have. Time is limited for each method,
    and the note says how many rows were reached if not all were.
    """
    runs: dict[str, Callable[[Any, Setup], Rearranged]] = {"score": _scorer, "select": _selector, "run": _fused}
    tallies, notes = [], []
    for method, whole in outputs.items():
        tally = _Tally({"score": "scores", "select": "selected keys", "run": "results of run"}[method])
        order = by_position(setup.inputs) if method == "run" else None
        requests = setup.inputs.key_counts.size if method != "select" else 0
        plan = list(arrangements(setup.trace.lengths.size, requests, order))
        try:
            limit = _run_all(runs[method](candidate, setup), plan, whole, _Judge(setup, method), tally)
        except CandidateFault as fault:
            tally.add("another batch", fault.verdict, 1, "", str(fault))
            limit = ""
        tallies.append(tally)
        notes += [*tally.notes, *([f"{tally.what}: {limit}"] if limit else [])]
    verdicts = [v for tally in tallies for v in tally.verdicts]
    return StageResult(
        "batch invariance",
        overall(verdicts),
        sum(t.elements for t in tallies),
        sum(t.differing for t in tallies),
        at=next((t.at for t in tallies if t.at), ""),
        note="; ".join(notes),
    )


def _run_all(run: Rearranged, plan: list[Arrangement], whole: Produced, judge: _Judge, tally: _Tally) -> str:
    """Every part of every arrangement while time is left, the first parts of all of them first.

    A sentence when time was not enough.
    """
    parts = zip_longest(*(arrangement.parts for arrangement in plan))
    calls = [(plan[i], rows) for turn in parts for i, rows in enumerate(turn) if rows is not None]
    # Whole batches have a time limit of their own, so that slow ones leave some for the cheap chunks.
    limits = {"reordered batches": (True, Budget()), "chunks": (False, Budget())}
    short = []
    for what, (whole_batch, budget) in limits.items():
        wanted = [(a, rows) for a, rows in calls if (len(a.parts) == 1) == whole_batch]
        for arrangement, rows in wanted:
            if not budget.open:
                break
            got = budget.time(lambda a=arrangement, r=rows: run(a, r))  # type: ignore[misc]
            judge.compare(arrangement, rows, got, whole, tally)
        short.append(budget.shortfall(budget.calls, len(wanted), what))
    return "; ".join(filter(None, short))


@dataclass(frozen=True)
class _Judge:
    """Decides whether rows that came out differently may do so."""

    setup: Setup
    method: str

    def compare(
        self, arrangement: Arrangement, rows: np.ndarray, got: Produced, whole: Produced, tally: _Tally
    ) -> None:
        if got.scores is not None and whole.scores is not None:
            self._compare_scores(arrangement.name, rows, got.scores, whole.scores[rows], tally)
        if got.selection is not None and whole.selection is not None:
            self._compare_sets(arrangement.name, rows, got.selection, whole.selection[rows], tally)

    def _reference(self) -> tuple[np.ndarray, np.ndarray | None]:
        if self.method == "select":
            return self.setup.selector_input[0].astype(np.float64), None
        scores, bound = self.setup.shared_scores if self.method == "score" else self.setup.unseen_scores
        return scores.values, bound

    def _compare_scores(self, name: str, rows: np.ndarray, got: np.ndarray, want: np.ndarray, tally: _Tally) -> None:
        lengths = self.setup.trace.lengths[rows]
        tally.elements += int(lengths.sum())
        differ = bits_differ(got, want, lengths)
        if not differ.any():
            return
        width = differ.shape[1]
        _, bound = self._reference()
        assert bound is not None
        with np.errstate(invalid="ignore"):
            apart = np.abs(got[:, :width].astype(np.float64) - want[:, :width])
            beyond = differ & ~(apart <= 2 * bound[rows, :width])
        row, key = first_place(beyond if beyond.any() else differ)
        seen = f"{int(differ.sum())} of {int(lengths.sum())} differ, row {rows[row]} key {key}: "
        seen += f"{got[row, key]!s} vs {want[row, key]!s}"
        verdict = Verdict.VIOLATION if beyond.any() else Verdict.WITHIN_BOUND
        tally.add(name, verdict, int(differ.sum()), f"row {rows[row]} key {key}", seen)

    def _compare_sets(self, name: str, rows: np.ndarray, got: np.ndarray, want: np.ndarray, tally: _Tally) -> None:
        tally.elements += got.size
        differ = np.flatnonzero((np.sort(got, axis=1) != np.sort(want, axis=1)).any(axis=1))
        if not differ.size:
            return
        scores, bound = self._reference()
        picked, lengths = rows[differ], self.setup.trace.lengths[rows[differ]]
        chosen, expected = (_keys(a[differ], lengths) for a in (got, want))
        certificate = certify_selection(
            chosen,
            expected,
            scores[picked],
            None if bound is None else bound[picked],
            lengths,
            nan=self.setup.conventions.topk_nan,
        )
        # Not another choice of keys: fewer of them, or the same ones beside something that is no visible key.
        pairs = zip(chosen, expected, certificate.verdicts, strict=True)
        broken = [g.size != w.size or np.array_equal(g, w) or verdict.failed for g, w, verdict in pairs]
        row = broken.index(True) if any(broken) else 0
        mine, theirs = got[differ[row]], want[differ[row]]
        found, lost = np.setdiff1d(mine, theirs), np.setdiff1d(theirs, mine)
        seen = f"row {picked[row]} selects {found[:3].tolist()} for {lost[:3].tolist()}"
        count = sum(np.setdiff1d(got[i], want[i]).size for i in differ)
        verdict = Verdict.VIOLATION if any(broken) else certificate.verdict
        tally.add(name, verdict, max(1, count), f"row {picked[row]}", seen)


def _keys(selection: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Distinct visible keys of each row."""
    return [np.unique(row[(row >= 0) & (row < n)]) for row, n in zip(selection, lengths, strict=True)]


def _scorer(candidate: Any, setup: Setup) -> Rearranged:
    batch = ScorerBatch.of(setup)

    def run(arrangement: Arrangement, rows: np.ndarray) -> Produced:
        whole = batch if arrangement.requests is None else batch.requests(arrangement.requests)
        return Produced(scores=whole.rows(rows).scores(candidate))

    return run


def _selector(candidate: Any, setup: Setup) -> Rearranged:
    scores, lengths = setup.selector_input
    topk = setup.inputs.geometry.topk
    offered = np.where(visible(lengths, scores.shape[1]), scores, FILLER).astype(np.float32)

    def run(arrangement: Arrangement, rows: np.ndarray) -> Produced:
        width = int(lengths[rows].max(initial=0))
        given = np.ascontiguousarray(offered[rows, :width])
        (got,) = call(candidate, "select", given, np.ascontiguousarray(lengths[rows]), topk)
        return Produced(selection=expect("select", "indices", got, (rows.size, topk), (np.int32, np.int64)))

    return run


def _fused(candidate: Any, setup: Setup) -> Rearranged:
    def run(arrangement: Arrangement, rows: np.ndarray) -> Produced:
        inputs = setup.inputs if arrangement.requests is None else renamed(setup.inputs, arrangement.requests)
        causal = setup.conventions.causal
        some = with_rows(inputs, rows) if len(arrangement.parts) == 1 else chunk_of(inputs, rows, causal)
        return produced_by_run(candidate, replace(setup, inputs=some))

    return run

"""Everything that a kernel must not read, filled with what would show: results must not move by a bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, call, expect
from dsa_crosscheck.compare.repeatability.bits import bits_differ, first_place
from dsa_crosscheck.compare.repeatability.budget import Budget
from dsa_crosscheck.compare.repeatability.embedded import Embedded
from dsa_crosscheck.compare.repeatability.fills import FILLS, page_images
from dsa_crosscheck.compare.repeatability.unreadable import AROUND, PAGES, SCALES, TABLE, VALUES, Isolated
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.verdict import Verdict

ALL = frozenset({PAGES, VALUES, SCALES, TABLE, AROUND})
SUSPECTS = ((VALUES,), (SCALES,), (PAGES,), (AROUND,), (VALUES, SCALES))
"""Tried one after the other when a result moved; the pair catches values that count only with a scale."""
SPARE_SCORES = 64
"""Columns past the longest row when scores are offered to a selector."""


@dataclass(frozen=True)
class Finding:
    """``elements`` compared over all fills, ``differing`` of them, where, and a sentence if any differ."""

    elements: int
    differing: int
    at: str = ""
    note: str = ""


def check_poison(candidate: Any, setup: Setup, stages: Iterable[str]) -> StageResult:
    """One line for the scorer and the selector, whichever ``stages`` names.

    ``VIOLATION`` when any visible score or any set of keys differs from the run with clean bytes; the
    note names what was read. A candidate that fails on the clean bytes fails as it did there.
    """
    checks: dict[str, Callable[[Any, Setup], Finding]] = {"score": poison_scores, "select": poison_select}
    try:
        found = [checks[stage](candidate, setup) for stage in stages]
    except CandidateFault as fault:
        return StageResult("poison", fault.verdict, 0, 0, note=f"with nothing poisoned: {fault}")
    differing = sum(f.differing for f in found)
    return StageResult(
        "poison",
        Verdict.VIOLATION if differing else Verdict.IDENTICAL,
        sum(f.elements for f in found),
        differing,
        at=next((f.at for f in found if f.at), ""),
        note="; ".join(f.note for f in found if f.note),
    )


def poison_scores(candidate: Any, setup: Setup) -> Finding:
    """Scores of the isolated rows with every unreadable byte overwritten, one fill after the other.

    Unset and spare block-table entries then hold the id just past the cache, a poisoned page and -1.
    Ids outside the cache lead to the guard pages around it, so following one is seen and not a crash.
    ``CandidateFault`` when the clean run itself fails.
    """
    if not setup.trace.lengths.any():
        return Finding(0, 0)
    trial = _Trial(candidate, Isolated.of(setup))
    elements = differing = 0
    at, note, moved, budget = "", "", [], Budget()
    for fill, records in FILLS.items():
        if not budget.open:
            break
        images = page_images(records(setup), setup)
        differ = budget.time(lambda images=images: trial.differ(images, ALL))  # type: ignore[misc]
        elements += int(trial.lengths.sum())
        differing += int(differ.sum())
        if differ.any():
            moved.append(fill)
            if not note:
                row, key = first_place(differ)
                at, note = f"row {row} key {key}", f"scores depend on {trial.blame(images, row)}"
    limit = budget.shortfall(budget.calls, len(FILLS), "fills")
    told = f"{note}: seen with {', '.join(moved)}{trial.raised}" if moved else ""
    return Finding(elements, differing, at, "; ".join(filter(None, (told, limit))))


def poison_select(candidate: Any, setup: Setup) -> Finding:
    """Selections with the columns past each row's length at -inf, and then at what would win."""
    scores, lengths = setup.selector_input
    topk = setup.inputs.geometry.topk
    offered = np.pad(scores, ((0, 0), (0, SPARE_SCORES)))
    seen = visible(lengths, offered.shape[1])

    def sets(filler: float) -> np.ndarray:
        given = np.where(seen, offered, np.float32(filler)).astype(np.float32)
        (got,) = call(candidate, "select", given, lengths, topk)
        return np.sort(expect("select", "indices", got, (lengths.size, topk), (np.int32, np.int64)), axis=1)

    clean = sets(-np.inf)
    fills = {"NaN": np.nan, "negative NaN": np.copysign(np.nan, -1.0), "inf": np.inf, "huge values": 3e38}
    differing, rows, moved = 0, np.zeros(lengths.size, bool), []
    for name, filler in fills.items():
        try:
            other = (sets(filler) != clean).any(axis=1)
        except CandidateFault as fault:
            moved.append(f"{name} ({fault})")
            differing += 1
            continue
        rows |= other
        differing += int(other.sum())
        if other.any():
            moved.append(name)
    at = f"row {int(np.argmax(rows))}" if rows.any() else ""
    note = f"selection depends on columns past the row's length: seen with {', '.join(moved)}" if moved else ""
    return Finding(len(fills) * lengths.size, differing, at, note)


class _Trial:
    """Runs of one candidate on the isolated rows, compared with its own clean run."""

    def __init__(self, candidate: Any, isolated: Isolated) -> None:
        self.candidate = candidate
        self.isolated = isolated
        self.lengths = isolated.clean.lengths
        self.raised = ""
        self.clean = self._scores(
            isolated.cache, np.zeros(isolated.cache.shape[1], np.uint8), isolated.clean.block_table
        )

    def differ(self, images: np.ndarray, regions: frozenset[str]) -> np.ndarray:
        """Visible scores that change when ``regions`` hold ``images`` [rows, page_bytes] (all if it raises)."""
        isolated = self.isolated
        cells = np.zeros(isolated.cache.shape, bool)
        for region in regions & isolated.masks.keys():
            cells |= isolated.masks[region]
        owner = np.zeros(isolated.cache.shape[0], np.int64)
        owner[isolated.private[isolated.private >= 0]] = np.flatnonzero(isolated.private >= 0)
        cache = np.where(cells, images[owner], isolated.cache)
        table = isolated.clean.block_table
        if TABLE in regions:
            pages = isolated.cache.shape[0]
            wrong = np.resize(np.array([pages, pages - 1, -1], np.int32), table.shape[1])
            table = np.where(isolated.spare, wrong, table)
        guard = images[0] if AROUND in regions else np.zeros_like(images[0])
        try:
            return bits_differ(self._scores(cache, guard, table), self.clean, self.lengths)
        except CandidateFault as fault:
            self.raised = f" ({fault})"
            return visible(self.lengths, int(self.lengths.max()))

    def blame(self, images: np.ndarray, row: int) -> str:
        """What was read: every region that moves a result alone, else the table if sparing it restores all."""
        found: list[str] = []
        for regions in SUSPECTS:
            if not found or len(regions) == 1:
                found += [regions[0]] if self.differ(images, frozenset(regions)).any() else []
        if not found and not self.differ(images, ALL - {TABLE}).any():
            found = [TABLE]
        if not found:
            return "several kinds of unreadable bytes together"
        places = [(region, self.isolated.place(region, row)) for region in found]
        return " and ".join(f"{region}: {place}" if place else region for region, place in places)

    def _scores(self, cache: np.ndarray, guard: np.ndarray, table: np.ndarray) -> np.ndarray:
        device = getattr(self.candidate, "device", "cpu")
        embedded = Embedded.around(cache, guard, device)
        batch = replace(self.isolated.clean, cache=embedded.cache, block_table=table)
        scores = batch.scores(self.candidate)
        count, where = embedded.changed(guard)
        if count or not np.array_equal(embedded.cache.cpu().numpy(), cache):
            raise CandidateFault(Verdict.VIOLATION, f"score wrote to {where or 'its cache, an input'}")
        return scores

"""A19: stores past a row's end. A20: the same input gives other scores."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, random_request
from verdicts import changed, fails, judged, line, passes, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
TILE = 32


def rows_of(keys: int, rows: int = 2, page_size: int = 64) -> Inputs:
    """Rows that all see every key."""
    geometry = Geometry(heads=2, head_dim=32, rope_dim=16, page_size=page_size, compress_ratio=1, topk=8)
    return random_request(geometry, keys, rows)


def into(tile: int, *, last_row_first: bool = True) -> Any:
    """``score_into`` in whole tiles without a mask: the rest of a row's last tile lands past its end."""

    def score_into(right: ReferenceCandidate, *args: torch.Tensor) -> None:
        *given, out = args
        scores = right.score(*given)
        memory = out.as_strided((out.untyped_storage().nbytes() // 4,), (1,), 0)
        order = range(out.shape[0])
        for row in reversed(order) if last_row_first else order:
            length = int(given[-1][row])
            start = out.storage_offset() + row * out.stride(0)
            memory[start : start + -(-length // tile) * tile] = 7.0
            memory[start : start + length] = scores[row, :length]

    return score_into


def guarded(inputs: Inputs, change: Any) -> Any:
    """The comparison with memory of the caller around the scores."""
    return judged(inputs, changed(FP8, score_into=change), FP8, explain=False, repeat=1)


def test_a19_into_the_next_row_at_tight_pitch() -> None:
    inputs = rows_of(65)
    passes(inputs, FP8, changed(FP8, score_into=into(1)), repeat=1)
    report = guarded(inputs, into(TILE))
    fails(
        report,
        Verdict.VIOLATION,
        "guard",
        r"row 1 columns 0-30 overwritten after row 0 \(tight pitch\)",
        r"31 cells after row 1 overwritten \(tight pitch\)",
        r"row 0 wrote columns 65-95 past its 65 \(padded pitch\)",
    )
    assert line(report, "scores").verdict.passed  # nothing to see in what the kernel returns


def test_a19_a_length_that_fills_its_tiles_hides_it() -> None:
    assert guarded(rows_of(64), into(TILE)).verdict.passed


def test_a19_the_next_row_written_later_heals_itself() -> None:
    """Rows in ascending order repair the damage, but not behind the last one, and not in a padded pitch."""
    report = guarded(rows_of(70, rows=3), into(TILE, last_row_first=False))
    fails(report, Verdict.VIOLATION, "guard", r"26 cells after row 2 overwritten \(tight pitch\)")
    assert "overwritten after row 0" not in line(report, "guard").note


def test_a19_a_scorer_that_returns_the_damage() -> None:
    """Without memory of the caller the overrun shows in the scores themselves."""

    def score(right: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = right.score(*args)
        scores[1, :31] = 7.0
        return scores

    report = judged(rows_of(65), changed(FP8, score=score), FP8)
    fails(report, Verdict.VIOLATION, "scores", "all errors lie in row 1")


def racing(every: int, row: int, key: int) -> Any:
    """One score is lost in one call of ``every``."""
    calls = iter(range(1, 10_000))

    def score(right: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = right.score(*args)
        if next(calls) % every == 0 and scores.shape[0] > row:
            scores[row, key] = 0.0
        return scores

    return score


NOT_REPRODUCIBLE = (
    r"not reproducible: (\d+) of (\d+) repeats differ, first at \({},{}\), values (\S+) vs (\S+?); at most 1 of"
)


@pytest.mark.parametrize(("every", "row", "key"), [(3, 0, 125), (2, 1, 0), (7, 1, 127)])
def test_a20_scores_that_change_are_refused(every: int, row: int, key: int) -> None:
    inputs = rows_of(128)
    inputs.gate[:] = np.abs(inputs.gate)
    # A relu that leaves out nothing: no score of these is 0 of itself.
    conventions = EXACT.with_field("relu", False)
    passes(inputs, conventions, repeat=20)
    report = judged(inputs, changed(conventions, score=racing(every, row, key)), conventions, repeat=20)
    assert (report.verdict, report.verdict.exit_code) == (Verdict.REFUSED, 3)
    note = line(report, "repeat: scores").note
    found = re.search(NOT_REPRODUCIBLE.format(row, key), note)
    assert found, note
    assert 1 <= int(found[1]) < int(found[2]) <= 20
    assert float(found[3]) != 0.0
    assert float(found[4]) == 0.0
    # No check that would compare two runs, and no precision claimed from one of them.
    assert not [r for r in report.stages if r.stage in ("poison", "guard", "batch invariance")]


def test_a20_a_selection_that_changes() -> None:
    calls = iter(range(1, 10_000))

    def select(right: ReferenceCandidate, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        chosen = right.select(scores, lengths, topk)
        if next(calls) > 2:  # the first two are the stage's own and the chain's
            chosen[0, 0] = next(key for key in range(int(lengths[0])) if key not in chosen[0])
        return chosen

    inputs = rows_of(128)
    passes(inputs, FP8, repeat=5)
    report = judged(inputs, changed(FP8, select=select), FP8, repeat=5)
    assert report.verdict is Verdict.REFUSED
    assert "not reproducible: " in line(report, "repeat: set").note


def test_a20_repeatable_and_wrong_is_a_violation() -> None:
    """The other fault of that report: plainly wrong numbers, every time the same ones."""
    report = judged(rows_of(128), changed(FP8, score=under("relu", False, "score")), FP8, explain=False, repeat=3)
    fails(report, Verdict.VIOLATION, "scores")
    assert line(report, "repeat: scores").verdict is Verdict.IDENTICAL

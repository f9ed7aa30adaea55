"""Guard bands: memory beside an output stays as it was, at tight and at padded row pitch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from candidates import FP8, Altered, case, right

from dsa_crosscheck.compare import Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.repeatability.guard import check_guards
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.keys import run_keys
from dsa_crosscheck.compare.stages.scores import run_scores
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

SMALL = partial(case, context=515, rows=6, topk=16)
TILE = 64
Tensor = torch.Tensor


def two_rows() -> Inputs:
    """Two rows of 65 keys each, one past a page and a tile: the smallest batch that shows an overrun."""
    inputs = case(context=260, rows=8, topk=16)
    kept = np.flatnonzero(inputs.request_of_row == 0)[:2]
    rows = {name: getattr(inputs, name)[kept] for name in ("query", "gate", "request_of_row")}
    return replace(inputs, query_positions=np.array([259, 259]), **rows)


def guarded(candidate: Any, inputs: Inputs, *, stores: bool = False) -> Any:
    """The line ``guard`` of a candidate's ``score_into``, or of its ``store_keys``."""
    setup = Setup(inputs, PRESETS[FP8].conventions, model("ieee-fp32"))
    if stores:
        return check_guards(candidate, setup, run_keys(right(), setup)[1], None)
    return check_guards(candidate, setup, None, run_scores(candidate, setup)[0])


def writing(write: Callable[[Tensor, Tensor, Tensor], None]) -> Altered:
    """A right candidate whose ``score_into`` does ``write(out, scores, lengths)``."""

    def score_into(base: Any, *args: Tensor) -> None:
        write(args[-1], base.score(*args[:-1]), args[-2])

    return Altered(right(), score_into=score_into)


def exact(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
    """Each row's visible scores and nothing else."""
    for row, length in enumerate(lengths.tolist()):
        out[row, :length] = scores[row, :length]


def raw_row(out: Tensor, row: int, cells: int) -> Tensor:
    """``cells`` cells from the start of a row, whatever the view says about its end."""
    return out.as_strided((cells,), (1,), out.storage_offset() + row * out.stride(0))


def tiles(order: Callable[[int], list[int]]) -> Callable[[Tensor, Tensor, Tensor], None]:
    """Whole tiles of scores, the last one zero past the row's length; rows in the order given."""

    def write(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
        for row in order(len(lengths)):
            length = int(lengths[row])
            cells = raw_row(out, row, -(-length // TILE) * TILE)
            cells[:length] = scores[row, :length]
            cells[length:] = 0.0

    return write


backwards = tiles(lambda rows: list(range(rows))[::-1])
forwards = tiles(lambda rows: list(range(rows)))


@pytest.mark.parametrize("inputs", [SMALL(), two_rows()], ids=["six rows", "two rows"])
def test_right_scorer_passes_at_both_pitches(inputs: Inputs) -> None:
    line = guarded(writing(exact), inputs)
    assert (line.verdict, line.differing, line.note) == (Verdict.IDENTICAL, 0, "")
    assert line.elements > 2 * 2 * 1024


def test_overrun_into_the_next_row_is_told_at_tight_pitch() -> None:
    line = guarded(writing(backwards), two_rows())
    assert line.verdict is Verdict.VIOLATION
    tight, padded = line.note.split(" (tight pitch); ")[0], line.note
    assert tight == "row 1 columns 0-62 overwritten after row 0"
    assert "63 cells after row 1 overwritten (tight pitch)" in padded
    assert "row 0 wrote columns 65-127 past its 65 (padded pitch)" in padded
    assert line.at == "row 1"


def test_an_overrun_that_the_next_row_repairs_shows_at_padded_pitch() -> None:
    line = guarded(writing(forwards), two_rows())
    assert line.verdict is Verdict.VIOLATION
    assert "overwritten after row 0" not in line.note
    assert "row 0 wrote columns 65-127 past its 65 (padded pitch)" in line.note


def test_cells_inside_the_view_past_a_length_may_be_written() -> None:
    def whole(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
        out.copy_(scores)

    assert guarded(writing(whole), SMALL()).verdict is Verdict.IDENTICAL


def before_the_first(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
    exact(out, scores, lengths)
    out.as_strided((2,), (1,), out.storage_offset() - 2)[:] = 0.0


def pitch_ignored(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
    """Rows lie as far apart as they are long."""
    width = out.shape[1]
    for row, length in enumerate(lengths.tolist()):
        out.as_strided((width,), (1,), out.storage_offset() + row * width)[:length] = scores[row, :length]


def last_column_forgotten(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
    row = int(lengths.argmax())
    exact(out, scores, lengths - (torch.arange(len(lengths)) == row).int())


def doubled(out: Tensor, scores: Tensor, lengths: Tensor) -> None:
    exact(out, scores * 2, lengths)


@pytest.mark.parametrize(
    ("write", "note"),
    [
        (before_the_first, "2 cells before row 0 overwritten (tight pitch)"),
        (pitch_ignored, "past its 128 (padded pitch)"),
        (last_column_forgotten, "columns 127-127 not written (tight pitch)"),
        (doubled, "differ from the scores that score returns (tight pitch)"),
    ],
)
def test_wrong_writes_are_placed(write: Callable[..., None], note: str) -> None:
    line = guarded(writing(write), SMALL())
    assert line.verdict is Verdict.VIOLATION
    assert note in line.note


def test_ignored_pitch_is_right_at_tight_pitch() -> None:
    assert "(tight pitch)" not in guarded(writing(pitch_ignored), SMALL()).note


def test_score_into_that_writes_an_input_is_a_violation() -> None:
    def score_into(base: Any, *args: Tensor) -> None:
        exact(args[-1], base.score(*args[:-1]), args[-2])
        args[1][0, 0] += 1.0

    line = guarded(Altered(right(), score_into=score_into), SMALL())
    assert line.verdict is Verdict.VIOLATION
    assert line.note == "score_into wrote to its argument 2, an input"


# The cache that store_keys fills.


@pytest.mark.parametrize("candidate", [right(), load("emulated", None), ReferenceCandidate(None)], ids=lambda c: c.name)
def test_right_stores_stay_inside_their_cache(candidate: Any) -> None:
    setup = Setup(SMALL(), PRESETS[FP8].conventions, model("ieee-fp32"))
    line = check_guards(candidate, setup, run_keys(candidate, setup)[1], None)
    assert (line.verdict, line.differing) == (Verdict.IDENTICAL, 0)


def one_key_past_the_cache(base: Any, *args: Tensor) -> None:
    """A key also goes to the slot behind the last page, where there is memory."""
    cache = args[-1]
    base.store_keys(*args)
    past = cache.storage_offset() + cache.numel()
    if cache.untyped_storage().nbytes() > past:
        cache.as_strided((128,), (1,), past)[:] = 1


def negative_slots_stored(base: Any, *args: Tensor) -> None:
    """What should be skipped lands in the page before the cache."""
    cache = args[-1]
    base.store_keys(*args)
    if cache.storage_offset():
        cache.as_strided((128,), (1,), cache.storage_offset() - 64 * 132)[:] = 1


@pytest.mark.parametrize(
    ("store", "where"),
    [
        (one_key_past_the_cache, r"(after the cache) bytes 0..127"),
        (negative_slots_stored, r"page -1 (before the cache) bytes 0..127"),
    ],
)
def test_stores_outside_the_cache_are_placed(store: Callable[..., None], where: str) -> None:
    report = crosscheck(SMALL(), Altered(right(), store_keys=store), repeat=1, explain=False)
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, "guard")
    line = next(r for r in report.stages if r.stage == "guard")
    assert line.note.startswith("store_keys wrote outside its cache: page ")
    assert where in line.note


def test_stored_bytes_that_depend_on_the_cache_before_are_found() -> None:
    def only_where_empty(base: Any, *args: Tensor) -> None:
        cache = args[-1]
        before = cache.clone()
        base.store_keys(*args)
        cache[before == 0xA5] = 0xA5

    line = guarded(Altered(right(), store_keys=only_where_empty), SMALL(), stores=True)
    assert line.verdict is Verdict.VIOLATION
    assert "depend on what the cache held before" in line.note


def test_nothing_to_guard_gives_no_line() -> None:
    report = crosscheck(SMALL(), Altered(right(), store_keys=None), repeat=1, explain=False)
    assert "guard" not in {r.stage for r in report.stages}

"""Poison: no byte that a row must not read may move a result, and what was read is named."""

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
from dsa_crosscheck.compare.repeatability.embedded import GUARD_PAGES, Embedded
from dsa_crosscheck.compare.repeatability.fills import FILLS
from dsa_crosscheck.compare.repeatability.poison import check_poison
from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
from dsa_crosscheck.compare.repeatability.unreadable import PAGES, SCALES, VALUES, Isolated
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import dequantise
from dsa_crosscheck.reference.record import unpack_record

SMALL = partial(case, context=1031, rows=8, topk=32)
PAGE = 64
VALUE_BYTES = PAGE * 128
KERNELS = ("sglang-v4-fp8", "sglang-v4-bf16", "sglang-v4-fp4")
Tensor = torch.Tensor


def setup_of(preset: str = FP8) -> Setup:
    return Setup(SMALL(preset), PRESETS[preset].conventions, model("ieee-fp32"))


def poisoned(candidate: Any, stages: tuple[str, ...] = ("score",)) -> Any:
    """The line ``poison`` of a candidate that takes the fp8 pages."""
    return check_poison(candidate, setup_of(), stages)


@pytest.mark.parametrize("preset", PRESETS)
def test_right_candidates_read_nothing_else(preset: str) -> None:
    setup = setup_of(preset)
    candidates: list[Any] = [right(preset), ReferenceCandidate(setup.conventions)]
    candidates += [load("emulated", setup.conventions)] if preset in KERNELS else []
    for candidate in candidates:
        line = check_poison(candidate, setup, ("score", "select"))
        assert (line.verdict, line.differing, line.note) == (Verdict.IDENTICAL, 0, "")
        assert line.elements == 3 * int(setup.trace.lengths.sum()) + 4 * setup.inputs.rows


# Faults: each adds to the first score of a row, and changes nothing where all unreadable bytes are zero.


def per_row(extra: Callable[..., float]) -> Altered:
    """Adds ``extra(cache, table of the row's request, length)`` to every row's first score."""

    def score(base: Any, *args: Tensor) -> Tensor:
        scores = base.score(*args)
        cache, table, request, lengths = args[2:]
        for row in range(scores.shape[0]):
            length = int(lengths[row])
            if length:
                scores[row, 0] += extra(cache, table[int(request[row])], length)
        return scores

    return Altered(right(), score=score)


def stale_values(cache: Tensor, table: Tensor, length: int) -> float:
    """The first value byte behind the row's last key."""
    return float(cache[table[length // PAGE], length % PAGE * 128]) if length % PAGE else 0.0


def stale_scales(cache: Tensor, table: Tensor, length: int) -> float:
    """The first scale byte behind the row's last key."""
    return float(cache[table[length // PAGE], VALUE_BYTES + length % PAGE * 4]) if length % PAGE else 0.0


def stale_products(cache: Tensor, table: Tensor, length: int) -> float:
    """Value times scale byte behind the row's last key: neither shows alone."""
    return stale_values(cache, table, length) * stale_scales(cache, table, length)


def unused_page(cache: Tensor, table: Tensor, length: int) -> float:
    """A byte of the last page of the cache."""
    return float(cache[-1, 5])


def spare_entries(cache: Tensor, table: Tensor, length: int) -> float:
    """Whether some entry past the row's pages is set."""
    return float((table[-(-length // PAGE) :] >= 0).any())


def next_page(cache: Tensor, table: Tensor, length: int) -> float:
    """A byte just past the cache, where the memory there is known."""
    past = cache.storage_offset() + cache.numel()
    return float(cache.as_strided((1,), (1,), past)[0]) if cache.untyped_storage().nbytes() > past else 0.0


@pytest.mark.parametrize(
    ("extra", "note"),
    [
        (stale_values, "scores depend on bytes of unused slots: page "),
        (stale_scales, "scores depend on scale bytes of unused slots: page "),
        (stale_products, "scores depend on bytes of unused slots: page "),
        (unused_page, "scores depend on bytes of unused pages"),
        (spare_entries, "scores depend on block-table entries past the row's length: logical page "),
        (next_page, "scores depend on memory around the cache"),
    ],
)
def test_what_was_read_is_named(extra: Callable[..., float], note: str) -> None:
    line = poisoned(per_row(extra))
    assert line.verdict is Verdict.VIOLATION
    assert line.differing > 0
    assert line.note.startswith(note)
    assert " and " not in line.note.split(":")[0]
    assert "seen with NaN, huge values, winning keys" in line.note


def test_place_of_stale_bytes_is_the_original_page() -> None:
    setup = setup_of()
    line = poisoned(per_row(stale_values))
    row = int(line.at.split()[1])
    length = int(setup.trace.lengths[row])
    page = setup.inputs.block_table[setup.inputs.request_of_row[row], length // PAGE]
    assert f"page {page} offset {length % PAGE}..63" in line.note


def test_a_key_past_the_length_is_unreadable_even_where_another_row_sees_it() -> None:
    """One key too many in a maximum that only a winning key changes."""

    def score(base: Any, *args: Tensor) -> Tensor:
        scores, lengths = base.score(*args), args[-1]
        longer = base.score(*args[:5], (lengths + (lengths % PAGE > 0)).to(torch.int32))
        for row, length in enumerate(lengths.tolist()):
            if length and longer[row, length - (length % PAGE == 0)] > 1e3:
                scores[row, 0] = 0.0
        return scores

    line = poisoned(Altered(right(), score=score))
    assert line.verdict is Verdict.VIOLATION
    assert "bytes of unused slots" in line.note
    assert "winning keys" in line.note


def test_an_index_error_on_a_foreign_page_id_counts_as_reading_it() -> None:
    def score(base: Any, *args: Tensor) -> Tensor:
        cache, table = args[2:4]
        if int(table.max()) >= cache.shape[0]:
            raise IndexError("page out of range")
        return base.score(*args)

    line = poisoned(Altered(right(), score=score))
    assert line.verdict is Verdict.VIOLATION
    assert "block-table entries past the row's length" in line.note
    assert "IndexError: page out of range" in line.note


def test_writing_around_the_cache_while_scoring_is_found() -> None:
    def score(base: Any, *args: Tensor) -> Tensor:
        cache = args[2]
        if cache.storage_offset():
            cache.as_strided((1,), (1,), cache.storage_offset() - 1)[0] = 7
        return base.score(*args)

    line = poisoned(Altered(right(), score=score))
    assert line.verdict is Verdict.VIOLATION
    assert "score wrote to page -1 (before the cache) bytes 8447..8447" in line.note


def test_a_candidate_that_refuses_the_clean_batch_fails_as_it_did() -> None:
    def score(base: Any, *args: Tensor) -> Tensor:
        raise RuntimeError("too many requests")

    line = poisoned(Altered(right(), score=score))
    assert (line.verdict, line.elements) == (Verdict.MALFORMED, 0)
    assert "with nothing poisoned: score raised RuntimeError: too many requests" in line.note


@pytest.mark.parametrize(("filler", "name"), [("nan", "NaN"), ("inf", "inf"), ("huge", "huge values")])
def test_columns_past_the_length_must_not_move_a_selection(filler: str, name: str) -> None:
    met: dict[str, Callable[[Tensor], Tensor]] = {
        "nan": torch.isnan,
        "inf": torch.isposinf,
        "huge": lambda scores: scores == 3e38,
    }

    def select(base: Any, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        chosen = base.select(scores, lengths, topk)
        past = torch.arange(scores.shape[1]) >= lengths.unsqueeze(1)
        if bool((met[filler](scores) & past).any()):
            chosen[int(lengths.argmax()), 0] = int(lengths.max()) - 1 - topk
            chosen[int(lengths.argmax()), 1] = int(lengths.max()) - 2 - topk
        return chosen

    line = poisoned(Altered(right(), select=select), ("select",))
    assert line.verdict is Verdict.VIOLATION
    assert f"selection depends on columns past the row's length: seen with {name}" in line.note
    assert line.at == f"row {int(setup_of().trace.lengths.argmax())}"


def test_crosscheck_reports_poison_as_a_failure_of_its_own() -> None:
    report = crosscheck(SMALL(), per_row(next_page), repeat=1, explain=False)
    assert (report.verdict, report.first_fault) == (Verdict.VIOLATION, "poison")
    assert "FIRST FAULT: poison at row" in str(report)
    assert all(r.verdict.passed for r in report.stages if r.stage != "poison")


# The batch that makes it possible.


@pytest.mark.parametrize("preset", PRESETS)
def test_every_byte_is_either_visible_or_poisoned_once(preset: str) -> None:
    setup = setup_of(preset)
    isolated = Isolated.of(setup)
    readable = np.zeros(isolated.cache.shape, int)
    for row, length in enumerate(isolated.clean.lengths):
        for key in range(length):
            page = isolated.clean.block_table[row, key // PAGE]
            readable[page, isolated.layout.addresses[key % PAGE]] = 1
    poisoned_by = sum(isolated.masks[name].astype(int) for name in (PAGES, VALUES, SCALES))
    assert (readable + poisoned_by == 1).all()


def test_isolated_rows_score_what_the_batch_scores() -> None:
    setup = setup_of()
    isolated, candidate = Isolated.of(setup), ReferenceCandidate(setup.conventions)
    batch = ScorerBatch.of(setup)
    seen = visible(batch.lengths, int(batch.lengths.max()))
    assert np.array_equal(isolated.clean.scores(candidate)[seen], batch.scores(candidate)[seen])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("fill", FILLS)
def test_fills_are_what_they_are_called(preset: str, fill: str) -> None:
    setup = setup_of(preset)
    codec, head_dim = setup.conventions.key, setup.inputs.geometry.head_dim
    records = FILLS[fill](setup)
    assert records.shape == (setup.inputs.rows, codec.record_bytes(head_dim))
    with np.errstate(over="ignore", invalid="ignore"):
        values = dequantise(unpack_record(records, codec, head_dim), codec)
    if fill == "NaN":
        assert np.isnan(values).all()
    elif fill == "huge values":
        largest = np.abs(dequantise(setup.trace.stored, codec)).max()
        assert (np.abs(values) > 1e3 * largest).all()
    else:
        assert np.isfinite(values).all()


def test_a_winning_key_wins_where_it_is_read() -> None:
    setup = setup_of()
    batch = ScorerBatch.of(setup)
    row = int(batch.lengths.argmax())
    records = FILLS["winning keys"](setup)
    cache = np.array(batch.cache)
    page = batch.block_table[batch.request_of_row[row], 0]
    cache[page, setup.layout.addresses[3]] = records[row]
    alone = replace(batch, cache=cache)
    scores = alone.scores(ReferenceCandidate(setup.conventions))[row, : batch.lengths[row]]
    assert int(scores.argmax()) == 3
    assert scores[3] > 100 * np.sort(scores)[-2]


def test_embedded_cache_is_a_view_between_guards() -> None:
    cache = np.arange(24, dtype=np.uint8).reshape(2, 12)
    embedded = Embedded.around(cache, np.full(12, 9, np.uint8), "cpu")
    assert embedded.cache.is_contiguous()
    assert np.array_equal(embedded.cache.numpy(), cache)
    assert embedded.changed(np.full(12, 9, np.uint8)) == (0, "")
    embedded.buffer[GUARD_PAGES + 2, 4:6] = 0
    assert embedded.changed(np.full(12, 9, np.uint8)) == (2, "page 2 (after the cache) bytes 4..5")

"""Every injected fault fails, at the stage that has it, and spoils the judgement of no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from candidates import Altered, case, flipped, judge, right
from read_faults import FAULTS

from dsa_crosscheck.compare import Report, Verdict
from dsa_crosscheck.reference.inputs import Inputs

RESULTS = {
    "pool": ("pool",),
    "store_keys": ("key scales", "key codes", "cache bytes"),
    "encode_query": ("query scales", "query codes", "head weights"),
    "score": ("scores",),
    "select": ("selection",),
}
"""Lines of a report that judge each method."""


def of_stage(report: Report, stage: str) -> Any:
    """The report's line called ``stage``."""
    return next(r for r in report.stages if r.stage == stage)


@cache
def passes_untouched(preset: str, inputs: Callable[[], Inputs] | None) -> bool:
    """Whether the right candidate passes on the inputs of a fault."""
    return judge(inputs() if inputs else case(preset), right(preset)).verdict.passed


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_pinned_to_its_stage(name: str) -> None:
    fault = FAULTS[name]
    assert passes_untouched(fault.preset, fault.inputs), "without the fault"
    report = judge(fault.case(), Altered(right(fault.preset), **{fault.method: fault.change}))
    assert report.verdict.failed
    assert report.first_fault == fault.stage
    assert f"FIRST FAULT: {fault.stage}" in str(report)
    failed = {r.stage for r in report.stages if r.verdict.failed}
    assert failed <= {*RESULTS[fault.method], "end to end"}


def test_every_stage_has_a_fault() -> None:
    assert {fault.method for fault in FAULTS.values()} == set(RESULTS)


@pytest.mark.parametrize(
    ("name", "verdict", "note"),
    [
        ("one key not stored", Verdict.VIOLATION, "1 of 578 keys were not written"),
        ("one key too many", Verdict.VIOLATION, "bytes that belong to no stored key were written"),
        ("skipped keys go to slot 0", Verdict.VIOLATION, "bytes that belong to no stored key were written"),
        ("-1 inside", Verdict.MALFORMED, "1 of 64 slots hold no visible key in row"),
        ("a NaN's bits as an index", Verdict.MALFORMED, "1 of 64 slots hold no visible key in row"),
        ("index past the length", Verdict.MALFORMED, "1 of 64 slots hold no visible key in row"),
        ("a key twice", Verdict.MALFORMED, "1 of 64 slots repeat a key in row"),
        ("zeros for padding", Verdict.MALFORMED, "are not minus-one padding"),
        ("index order where score order is declared", Verdict.VIOLATION, "the right keys, not in score order"),
        ("one score NaN", Verdict.VIOLATION, "here nan for"),
    ],
)
def test_note_says_what_is_wrong(name: str, verdict: Verdict, note: str) -> None:
    fault = FAULTS[name]
    report = judge(fault.case(), Altered(right(fault.preset), **{fault.method: fault.change}))
    lines = [r for r in report.stages if note in r.note and r.stage in RESULTS[fault.method]]
    assert [r.verdict for r in lines] == [verdict]


@pytest.mark.parametrize(
    ("path", "value", "note"),
    [
        ("key.scale", "power-of-two", r"\d+ of 578 not explained, all too large; here"),
        ("rope_pairing", "half-split", r"\d+ of 578 not explained; here"),
    ],
)
def test_scales_that_are_off_to_one_side_are_said_to_be(path: str, value: str, note: str) -> None:
    wrong = flipped(right(), path, value)
    report = judge(case(), Altered(right(), store_keys=lambda base, *args: wrong.store_keys(*args)))
    assert re.match(note, of_stage(report, "key scales").note)


def test_wrong_key_is_listed_with_its_gap() -> None:
    fault = FAULTS["key of rank k + 20"]
    report = judge(fault.case(), Altered(right(), select=fault.change))
    assert report.selection is not None
    swaps = report.selection.swaps
    assert (report.selection.swap_count, len(swaps)) == (1, 1)
    assert swaps[0].gap == swaps[0].missed_score - swaps[0].returned_score > swaps[0].bound > 0
    assert report.selection.factor == pytest.approx(swaps[0].gap / swaps[0].bound)
    assert report.selection.overlap_min == 1 - 1 / 64


def test_place_is_logical_and_physical() -> None:
    inputs = case()
    report = judge(inputs, Altered(right(), score=FAULTS["one score wrong"].change))
    row = int(np.argmax(inputs.query_positions))
    page = inputs.block_table[inputs.request_of_row[row], 0]
    assert of_stage(report, "scores").at == f"row {row} key 5 ({page}:5)"


def test_a_fault_of_the_second_call_only_shows_end_to_end() -> None:
    calls = []

    def score(base: Any, *args: torch.Tensor) -> torch.Tensor:
        calls.append(args)
        return base.score(*args) if len(calls) == 1 else -base.score(*args)

    report = judge(case(), Altered(right(), score=score))
    assert report.first_fault == "end to end"
    assert of_stage(report, "scores").verdict.passed
    assert report.selection is not None
    assert report.selection.verdict is Verdict.VIOLATION


def test_unexplained_codes_say_how_much_bound_they_need() -> None:
    report = judge(case(), Altered(right(), store_keys=FAULTS["keys with half-split RoPE"].change))
    assert 1.0 < of_stage(report, "key codes").factor < float("inf")

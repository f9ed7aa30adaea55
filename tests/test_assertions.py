"""Assertions on one stage's arrays, and what ``assert_crosscheck`` takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from candidates import right

from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.testing import (
    Case,
    CrosscheckFailure,
    assert_cache_bytes,
    assert_crosscheck,
    assert_scores,
    assert_selection,
)
from dsa_crosscheck.compare.testing.fixture_choice import available, chosen
from dsa_crosscheck.compare.testing.settings import Settings, settings_of_a_test
from dsa_crosscheck.compare.testing.worst import with_physical
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace

FIXTURE = "sglang-v4-fp8.fp8.gaussian"
CASE = Case(FIXTURE, available(full=False)[FIXTURE])
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.array,
    "torch": lambda array: torch.from_numpy(array.copy()),
    "jax": jnp.asarray,
}
LONGEST = int(np.argmax(CASE["lengths"]))


def scores() -> np.ndarray:
    """Right scores in float32."""
    return CASE["scores"].astype(np.float32)


def wrong_selection() -> np.ndarray:
    """The longest row with its best key replaced by the one that it leaves out."""
    selection = CASE["selector.selection"].copy()
    (left_out,) = set(range(CASE["lengths"][LONGEST])) - set(selection[LONGEST].tolist())
    best = CASE["scores"][LONGEST][selection[LONGEST]].argmax()
    selection[LONGEST, best] = left_out
    return selection


@pytest.mark.parametrize("kind", KINDS)
def test_right_arrays_of_every_library_pass(kind: str) -> None:
    make = KINDS[kind]
    assert_scores(make(scores()), CASE)
    assert_selection(make(CASE["selector.selection"]), CASE)
    for source in ("cache", "inputs"):
        assert_selection(make(CASE["selection"]), CASE, made_from=source)
    assert_cache_bytes(make(CASE["cache"]), CASE)
    assert_cache_bytes(make(CASE["poisoned_cache"]), CASE, before=make(np.full_like(CASE["cache"], 0xFF)))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arrays_of_every_library_fail(kind: str) -> None:
    make = KINDS[kind]
    with pytest.raises(CrosscheckFailure, match="scores: VIOLATION"):
        assert_scores(make(scores() + np.float32(0.01)), CASE)
    with pytest.raises(CrosscheckFailure, match="selection: VIOLATION"):
        assert_selection(make(wrong_selection()), CASE)
    with pytest.raises(CrosscheckFailure, match="cache: VIOLATION"):
        assert_cache_bytes(make(CASE["cache"] ^ np.uint8(1)), CASE)


def test_half_width_floats_are_judged_by_the_model_that_is_named() -> None:
    narrow = torch.from_numpy(scores()).bfloat16()
    for given in (narrow, jnp.asarray(scores()).astype(jnp.bfloat16), scores().astype(ml_dtypes.bfloat16)):
        assert_scores(given, CASE, bound="bf16-scores")
        with pytest.raises(CrosscheckFailure, match=r"cause: .* score_rounding is bf16 instead of none"):
            assert_scores(given, CASE)


def test_columns_past_the_longest_row_are_not_read() -> None:
    assert_scores(np.pad(scores(), ((0, 0), (0, 3)), constant_values=np.nan), CASE)
    padded = scores()
    padded[~np.isfinite(padded)] = np.nan
    assert_scores(padded, CASE)


@pytest.mark.parametrize(("value", "verdict"), [(np.nan, "VIOLATION"), (np.inf, "VIOLATION"), (0.0, "VIOLATION")])
def test_one_wrong_score_is_named(value: float, verdict: str) -> None:
    given = scores()
    given[LONGEST, 2] = value
    page = CASE["inputs.block_table"][CASE["inputs.request_of_row"][LONGEST], 0]
    with pytest.raises(CrosscheckFailure) as caught:
        assert_scores(given, CASE)
    text = str(caught.value)
    assert re.search(rf"first fault: scores \({verdict}\): 1 of 54 elements wrong", text)
    assert re.search(rf"at: +row {LONGEST} key 2 \({page}:2\)", text)
    assert re.search(rf"values: .*here {value:.9g} for {CASE['scores'][LONGEST, 2]:.9g}", text)
    assert re.search(r"would pass: +(\d[\d.e+]*|no multiple of) ?(times )?the bound", text)
    assert caught.value.report is not None
    assert caught.value.report.first_fault == "scores"


def test_selection_text() -> None:
    with pytest.raises(CrosscheckFailure) as caught:
        assert_selection(wrong_selection(), CASE, made_from="cache")
    text = str(caught.value)
    assert re.search(rf"at: +row {LONGEST} key \d+ \(\d+:\d+\)", text)
    assert re.search(r"values: +key \d+ of score \S+ missed for key \d+ of \S+", text)
    assert re.search(r"gap: +\d\S+\n +bound: +\d\S+ \(ieee-fp32\)\n +would pass: +\d\S+ times the bound", text)


def test_a_selection_has_the_freedom_of_what_it_is_made_from() -> None:
    """The k-th key exchanged for the next: nearer than codes that nobody saw may move, further than scores may."""
    name = "deepseek-v32.fp8.gaussian"
    case = Case(name, available(full=False)[name])
    selection, row = case["selection"].copy(), int(np.argmin(case["margin"]))
    topk, keys = case.inputs.geometry.topk, np.arange(case["lengths"][row])
    order = keys[np.argsort(-case["scores"][row, keys])]
    assert selection[row, -1] == order[topk - 1]
    selection[row, -1] = order[topk]
    assert_selection(selection, case, made_from="inputs")
    for source in ("cache", "scores"):
        with pytest.raises(CrosscheckFailure, match=f"at: +row {row} key {order[topk - 1]} "):
            assert_selection(selection, case, made_from=source)
    assert_selection(selection, case, made_from="inputs", bound="tensor-core-fp8")


def test_contract_of_a_selection() -> None:
    with pytest.raises(CrosscheckFailure, match=r"selection: MALFORMED.*\n.*\n.*\n +found: +.*repeat a key in row"):
        assert_selection(np.zeros_like(CASE["selection"]), CASE)
    with pytest.raises(CrosscheckFailure, match=r"select should return indices as int32 or int64 \[6, 16\], got int16"):
        assert_selection(CASE["selection"].astype(np.int16), CASE)


def test_cache_text_names_the_cause() -> None:
    conventions = CASE.conventions.with_field("rope_pairing", "half-split")
    with pytest.raises(
        CrosscheckFailure, match=r"cause: +matches if rope_pairing is half-split instead of interleaved"
    ):
        assert_cache_bytes(Trace(CASE.inputs, conventions).cache, CASE)


def test_bytes_of_no_key_are_judged_only_against_what_was_there() -> None:
    stray = CASE["poisoned_cache"].copy()
    stray[0, 0] = 1
    assert_cache_bytes(stray, CASE)
    with pytest.raises(CrosscheckFailure, match=r"first fault: cache bytes .*\n +at: +page 0 byte 0"):
        assert_cache_bytes(stray, CASE, before=np.full_like(stray, 0xFF))


def test_a_key_that_was_not_written_is_seen_against_what_was_there() -> None:
    with pytest.raises(CrosscheckFailure, match="22 of 22 keys were not written"):
        assert_cache_bytes(CASE["cache"], CASE, before=CASE["cache"])


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: assert_scores([[1.0]], CASE), r"`assert_scores\(scores=...\)` should be a torch tensor.*, got list"),
        (lambda: assert_selection(None, CASE), r"`assert_selection\(selection=...\)` should be .*, got NoneType"),
        (lambda: assert_cache_bytes(b"", CASE), r"`assert_cache_bytes\(cache=...\)` should be .*, got bytes"),
        (
            lambda: assert_cache_bytes(CASE["cache"], CASE, before=b""),
            r"`assert_cache_bytes\(before=...\)` should be .*, got bytes",
        ),
        (lambda: assert_scores(scores(), "x"), r"`assert_scores\(case=...\)` should be the fixture .*, got str"),  # type: ignore[arg-type]
        (lambda: assert_scores(scores(), CASE, bound="1e-3"), "`bound` should be one of .*, got '1e-3'"),
        (lambda: assert_scores(scores(), CASE, bound=1e-3), "`bound` should be one of .*, got 0.001"),  # type: ignore[arg-type]
        (lambda: assert_scores(scores(), CASE, preset="v4"), "`preset` should be one of .*, got 'v4'"),
        (lambda: assert_scores(scores(), CASE.inputs), r"`assert_scores\(preset=...\)` should be given with Inputs"),
        (
            lambda: assert_selection(CASE["selection"], CASE, made_from="logits"),
            r"`assert_selection\(made_from=...\)` should be one of .*, got 'logits'",
        ),
        (
            lambda: assert_selection(CASE["selection"], CASE, bound="ieee-fp32"),
            r"`assert_selection\(bound=...\)` should be None for a selection from scores",
        ),
        (
            lambda: assert_crosscheck(object(), CASE),
            r"`assert_crosscheck\(candidate=...\)` should have an attribute `name`",
        ),
        (lambda: assert_crosscheck("no-such", CASE), "`--candidate` should be one of .*; got 'no-such'"),
        (lambda: CASE["key"], f"{FIXTURE} has no array 'key'; it has .*cache"),
    ],
)
def test_bad_arguments_are_named(check: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        check()


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda: assert_scores(scores()[:3], CASE),
            r"score should return scores as float32 \[6, 17\], got float32 \[3, 17\]",
        ),
        (lambda: assert_scores(scores()[0], CASE), r"got float32 \[17\]"),
        (lambda: assert_scores(CASE["scores"], CASE), r"got float64 \[6, 17\]"),
        (lambda: assert_cache_bytes(CASE["cache"][1:], CASE), r"store_keys should return its cache as uint8 \[6, "),
        (
            lambda: assert_cache_bytes(CASE["cache"], CASE, before=CASE["cache"][1:]),
            r"store_keys should return the cache before it as uint8",
        ),
    ],
)
def test_arrays_of_another_shape_or_type_are_malformed(check: Callable[[], object], message: str) -> None:
    with pytest.raises(CrosscheckFailure, match="MALFORMED") as caught:
        check()
    assert re.search(message, str(caught.value))


def test_inputs_without_a_fixture() -> None:
    inputs, preset = CASE.inputs, "deepseek-v4"
    made = Trace(inputs, PRESETS[preset].conventions)
    assert_cache_bytes(made.cache, inputs, preset=preset)
    assert_crosscheck(right(preset), inputs, repeat=0)
    assert_crosscheck(Unfused, inputs, preset=preset, repeat=0)
    with pytest.raises(CrosscheckFailure, match="on inputs of the test "):
        assert_scores(np.full_like(scores(), 5.0), inputs, preset=preset)


def test_vacuous_stages_fail_unless_allowed() -> None:
    inputs = replace(CASE.inputs, geometry=replace(CASE.inputs.geometry, topk=20))
    selection = Trace(inputs, CASE.conventions).selection
    with pytest.raises(
        CrosscheckFailure, match=r"selection: VACUOUS - .*\n.*\n +undecided: +selection: k = 20 selects"
    ):
        assert_selection(selection, inputs, preset=CASE.conventions)
    with settings_of_a_test(Settings(allow_vacuous=True)):
        assert_selection(selection, inputs, preset=CASE.conventions)
        with pytest.raises(CrosscheckFailure, match="MALFORMED"):
            assert_selection(np.zeros_like(selection), inputs, preset=CASE.conventions)


def test_a_judges_conventions_may_be_others_than_the_candidates() -> None:
    assert_crosscheck(right(), CASE, repeat=0)
    with pytest.raises(CrosscheckFailure, match="under deepgemm-fp8, on"):
        assert_crosscheck(right(), CASE, preset="deepgemm-fp8", repeat=0)


def test_fixtures_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        CASE["cache"][0, 0] = 1


def test_physical_addresses_follow_the_block_table() -> None:
    inputs = CASE.inputs
    request = inputs.request_of_row[LONGEST]
    last = int(CASE["lengths"][LONGEST]) - 1
    page, offset = divmod(last, inputs.geometry.page_size)
    assert page > 0, "the key should lie past the first page"
    assert with_physical(f"row {LONGEST} key {last}", inputs) == (
        f"row {LONGEST} key {last} ({inputs.block_table[request, page]}:{offset})"
    )
    for complete in (f"row {LONGEST} key 3 (5:3)", "row 2 head 3", "page 0 byte 7", ""):
        assert with_physical(complete, inputs) == complete


def test_choice_of_fixtures() -> None:
    names = {name: 0 for name in ("a.fp8.x", "a.fp4.y", "b.fp8.x")}
    assert list(chosen(names, (), ())) == list(names)
    assert list(chosen(names, (("*.x",), ()), ((), ("a",)))) == ["a.fp8.x"]
    assert list(chosen(names, (("*.x", "a.fp4.y"),), ())) == list(names)
    with pytest.raises(ValueError, match="`presets` should match some of a, b; got 'c'"):
        chosen(names, (), (("a", "c"),))
    with pytest.raises(ValueError, match="should leave a fixture"):
        chosen(names, (("*.y",),), (("b",),))

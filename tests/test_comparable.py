"""Caches that cannot be compared are refused, and the first field that differs is named."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from candidates import FP8, Altered, case, right

from dsa_crosscheck.compare import Report, Verdict, crosscheck
from dsa_crosscheck.compare.candidates.reference import FusedReference
from dsa_crosscheck.compare.comparable import CacheDescription, describe, disagreement
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace

SMALL = partial(case, context=515, rows=6, topk=16)


def transfer(tokens: int, pages: int) -> CacheDescription:
    """One request of fp8 keys, one key a token, on pages of 64."""
    return CacheDescription((tokens,), 64, "fp8-e4m3fn", "fp32", "values-then-scales", (tuple(range(pages)),))


def pages_of_sender(prompt: int) -> int:
    """One too many: the sampled token is counted as well."""
    return (prompt + 1 + 63) // 64


def pages_of_receiver(prompt: int) -> int:
    return (prompt + 63) // 64


@pytest.mark.parametrize("prompt", [127, 129, 130, 128, 64, 192])
def test_a_page_too_many_shows_at_page_boundaries_only(prompt: int) -> None:
    note = disagreement(transfer(prompt, pages_of_sender(prompt)), transfer(prompt, pages_of_receiver(prompt)))
    assert bool(note) == (prompt % 64 == 0)
    if prompt == 128:
        assert note == "source and destination page lists differ in length: 3 vs 2 at logical length 128"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"lengths": (127,)}, "source and destination differ in length of request 0: 128 vs 127"),
        ({"lengths": (128, 0), "pages": ((0, 1), ())}, "source and destination differ in number of requests: 1 vs 2"),
        ({"page_size": 16}, "source and destination differ in page_size: 64 vs 16"),
        ({"format": "bf16"}, "source and destination differ in format: fp8-e4m3fn vs bf16"),
        ({"scale": "power-of-two"}, "source and destination differ in scale: fp32 vs power-of-two"),
        (
            {"page_order": "token-interleaved"},
            "source and destination differ in page_order: values-then-scales vs token-interleaved",
        ),
        ({"pages": ((7, 3),)}, ""),
        ({}, ""),
        ({"page_size": 16, "format": "bf16"}, "source and destination differ in page_size: 64 vs 16"),
    ],
)
def test_first_field_that_differs_is_named(changes: dict[str, Any], note: str) -> None:
    assert disagreement(transfer(128, 2), replace(transfer(128, 2), **changes)) == note


def test_pages_need_a_list_a_request() -> None:
    with pytest.raises(ValueError, match=r"`CacheDescription\(pages=...\)` should have 2 lists, one a request, got 1"):
        CacheDescription((3, 4), 64, "bf16", None, "values-then-scales", ((0,),))


def declared(**changes: Any) -> Report:
    """The report of a right candidate that declares its cache, changed in some fields."""
    candidate = right()
    own = describe(Setup(SMALL(), candidate.conventions, model("ieee-fp32")))
    calls = []

    def store_keys(base: Any, *args: torch.Tensor) -> None:
        calls.append(args)
        base.store_keys(*args)

    altered = Altered(candidate, store_keys=store_keys)
    altered.cache = replace(own, **changes)
    report = crosscheck(SMALL(), altered, repeat=0)
    assert bool(calls) == report.verdict.passed
    return report


def test_a_candidate_on_another_cache_is_refused_and_not_run() -> None:
    pages = describe(Setup(SMALL(), right().conventions, model("ieee-fp32"))).pages
    report = declared(pages=((*pages[0], 99), *pages[1:]))
    assert (report.verdict, report.verdict.exit_code, report.first_fault) == (Verdict.REFUSED, 3, None)
    assert [r.stage for r in report.stages] == ["cache"]
    have = len(pages[0])
    note = f"source and destination page lists differ in length: {have} vs {have + 1} at logical length 128"
    assert report.stages[0].note == note
    assert "page lists differ in length" in str(report)
    assert report.to_dict()["verdict"] == "REFUSED"


def test_a_candidate_on_the_same_cache_is_compared() -> None:
    assert declared().verdict.passed


def test_an_attribute_of_another_type_declares_nothing() -> None:
    candidate = Altered(right())
    candidate.cache = {"pages": 3}
    assert crosscheck(SMALL(), candidate, repeat=0).verdict.passed


class ShowsCache(FusedReference):
    """The fused reference with the cache it filled, less its last ``missing`` pages."""

    def __init__(self, missing: int = 0, flip: bool = False) -> None:
        super().__init__(None)
        self._missing, self._flip = missing, flip

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        trace = Trace(inputs, self.conventions)
        cache = np.array(trace.cache[: len(trace.cache) - self._missing])
        if self._flip:
            cache.reshape(-1)[int(inputs.slots[0]) // 64 * cache.shape[1] + int(inputs.slots[0]) % 64 * 128] ^= 0x30
        return {"selection": torch.from_numpy(trace.selection), "cache": torch.from_numpy(cache)}


def test_a_returned_cache_of_another_shape_is_refused() -> None:
    report = crosscheck(SMALL(), ShowsCache(missing=1), repeat=0)
    pages = SMALL().pages
    assert report.verdict is Verdict.REFUSED
    note = (
        f"source and destination differ in the shape of the cache: uint8 [{pages}, 8448] vs uint8 [{pages - 1}, 8448]"
    )
    assert note in report.stages[-1].note


def test_a_returned_cache_is_judged_by_its_keys() -> None:
    names = {"run: key scales", "run: key codes", "run: cache bytes"}
    good = crosscheck(SMALL(), ShowsCache(), repeat=0)
    assert good.verdict is Verdict.IDENTICAL
    assert names <= {r.stage for r in good.stages}
    bad = crosscheck(SMALL(), ShowsCache(flip=True), repeat=0, explain=False)
    assert (bad.verdict, bad.first_fault) == (Verdict.VIOLATION, "run: key codes")


def test_description_follows_the_preset() -> None:
    own = describe(Setup(SMALL(), PRESETS[FP8].conventions, model("ieee-fp32")))
    assert (own.page_size, own.format, own.page_order) == (64, "fp8-e4m3fn", "values-then-scales")
    assert own.lengths == tuple(SMALL().key_counts)
    assert [len(p) for p in own.pages] == [-(-n // 64) for n in own.lengths]

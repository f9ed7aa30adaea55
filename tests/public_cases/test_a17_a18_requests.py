"""A17: the start of a row's window ignored. A18: sender and receiver count pages differently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, aimed, along_first, inputs_of
from verdicts import fails, judged, passes

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import FusedReference
from dsa_crosscheck.compare.comparable import describe
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.trace import Trace

SIZE = 4


def ragged(*tokens: int, descending: bool = True) -> Inputs:
    """One row at the end of each request; every request scores above the ones after it, or below."""
    geometry = Geometry(heads=1, head_dim=8, rope_dim=2, page_size=SIZE, compress_ratio=1, topk=2)
    scores = np.linspace(2.5, 0.5, sum(tokens)) if descending else np.linspace(0.5, 2.5, sum(tokens))
    keys = np.split(aimed(scores, 8), np.cumsum(tokens)[:-1])
    rows = [(request, n - 1) for request, n in enumerate(tokens)]
    return inputs_of(geometry, keys, rows, along_first(len(tokens), 1, 8), 1 + np.arange(len(tokens))[:, None] / 16)


class Packed:
    """All requests' keys in one row of scores, each row a window of it; selects physical slots."""

    name = "packed"
    returns = "physical"
    conventions = EXACT

    def __init__(self, *, honours_start: bool) -> None:
        self.honours_start = honours_start

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """The best of columns [start, end), or of [0, end) where the start is not passed on."""
        trace = Trace(inputs, EXACT)
        end = np.cumsum(inputs.key_counts)
        normed = trace.keys.rotated @ inputs.query[:, 0].T.astype(np.float64)
        out = np.full((inputs.rows, inputs.geometry.topk), -1, np.int32)
        for row, request in enumerate(inputs.request_of_row):
            start = int(end[request] - inputs.key_counts[request]) if self.honours_start else 0
            window = normed[start : end[request], row]
            count = min(inputs.geometry.topk, int(trace.lengths[row]))
            best = start + np.argsort(-window, kind="stable")[:count]
            out[row, :count] = inputs.slots[best]
        return {"selection": torch.from_numpy(out)}


def test_a17_keys_of_the_request_before() -> None:
    inputs = ragged(3, 5)
    passes(inputs, EXACT, Packed(honours_start=True))
    report = judged(inputs, Packed(honours_start=False), EXACT, explain=False)
    fails(report, Verdict.MALFORMED, "end to end", "request 1 selected keys of request 0: 2 slots in 1 row")
    assert "request 0 selected" not in str(report)


def test_a17_each_request_is_counted() -> None:
    inputs = ragged(5, 3, 6)
    passes(inputs, EXACT, Packed(honours_start=True))
    report = judged(inputs, Packed(honours_start=False), EXACT, explain=False)
    fails(
        report,
        Verdict.MALFORMED,
        "end to end",
        "request 1 selected keys of request 0: 2 slots in 1 row; "
        "request 2 selected keys of request 0: 2 slots in 1 row",
    )


def test_a17_later_requests_that_score_higher_hide_it() -> None:
    inputs = ragged(3, 5, descending=False)
    assert judged(inputs, Packed(honours_start=False), EXACT).verdict.passed


def test_a17_one_request_has_no_start() -> None:
    assert judged(ragged(6), Packed(honours_start=False), EXACT).verdict.passed


class Transferred(FusedReference):
    """Works on a cache that was sent page by page; ``extra`` tokens more than the receiver registered."""

    def __init__(self, inputs: Inputs, extra: int) -> None:
        super().__init__(EXACT)
        self.cache = describe(Setup(inputs, EXACT, model("ieee-fp32")))
        tokens = int(inputs.key_counts[0]) + extra
        pages = tuple(range(-(-tokens // inputs.geometry.page_size)))
        self.cache = replace(self.cache, pages=(pages,))

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Counts that it ran."""
        self.ran = True
        return super().run(inputs)


def prompt(tokens: int, page_size: int = 64) -> Inputs:
    """One request of one key a token."""
    geometry = Geometry(heads=1, head_dim=8, rope_dim=2, page_size=page_size, compress_ratio=1, topk=8)
    return inputs_of(geometry, [aimed(np.linspace(0.5, 2.5, tokens), 8)], [(0, tokens - 1)], along_first(1, 1, 8))


def test_a18_a_prompt_that_ends_with_its_page() -> None:
    inputs = prompt(128)
    passes(inputs, EXACT, Transferred(inputs, 0))
    candidate = Transferred(inputs, 1)
    report = judged(inputs, candidate, EXACT)
    assert (report.verdict, report.verdict.exit_code) == (Verdict.REFUSED, 3)
    assert "source and destination page lists differ in length: 2 vs 3 at logical length 128" in str(report)
    assert not hasattr(candidate, "ran")


@pytest.mark.parametrize(
    ("tokens", "page_size", "refused"),
    [(127, 64, False), (129, 64, False), (130, 64, False), (64, 64, True), (48, 16, True), (5, 1, True)],
)
def test_a18_only_page_boundaries_show_it(tokens: int, page_size: int, refused: bool) -> None:
    inputs = prompt(tokens, page_size)
    assert (judged(inputs, Transferred(inputs, 1), EXACT).verdict is Verdict.REFUSED) == refused


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("page_size", 16, "page_size: 64 vs 16"),
        ("format", "bf16", "format: exact vs bf16"),
        ("page_order", "token-interleaved", "page_order: values-then-scales vs token-interleaved"),
        ("lengths", (127,), "length of request 0: 128 vs 127"),
    ],
)
def test_a18_every_other_field_is_named(field: str, value: Any, said: str) -> None:
    inputs = prompt(128)
    candidate = Transferred(inputs, 0)
    candidate.cache = replace(candidate.cache, **{field: value})
    report = judged(inputs, candidate, EXACT)
    assert report.verdict is Verdict.REFUSED
    assert f"source and destination differ in {said}" in str(report)

"""A05: every layer's scales in the first layer's region. A06: pages read in another byte order than written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, random_request
from verdicts import changed, fails, judged, passes, under

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.layers import check_layers
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
FP4 = PRESETS["sglang-v4-fp4"].conventions
TOPK = 16


def layers(number: int, conventions: Conventions) -> list[Setup]:
    """k + 1 keys a layer, different ones."""
    geometry = Geometry(heads=2, compress_ratio=1, topk=TOPK)
    made = [random_request(geometry, TOPK + 1, 2, seed=10 * layer, turned=False) for layer in range(number)]
    return [Setup(inputs, conventions, model("ieee-fp32")) for inputs in made]


def stored_right(conventions: Conventions) -> Callable[..., None]:
    """Each layer into its own part of the allocation."""

    def store(layer: int, *args: torch.Tensor) -> None:
        *numbers, pool = args
        ReferenceCandidate(conventions).store_keys(*numbers, pool[layer])

    return store


def stored_with_region_of_layer_0(setup: Setup, region: str) -> Callable[..., None]:
    """One region's view lacks the layer's own offset, so that every layer writes it into layer 0."""
    bytes_of = setup.layout.addresses
    width = setup.layout.value_bytes
    shared = np.unique(bytes_of[:, width:] if region == "scale" else bytes_of[:, :width])

    def store(layer: int, *args: torch.Tensor) -> None:
        *numbers, pool = args
        own = pool[layer].clone()
        kept = own[:, shared].clone()
        ReferenceCandidate(setup.conventions).store_keys(*numbers, own)
        written = own[:, shared].clone()
        own[:, shared] = kept
        pool[layer] = own
        pages = np.unique(numbers[-1].numpy() // setup.layout.page_size)
        pool[0][np.ix_(pages, shared)] = written[pages]

    return store


def test_a05_scales_of_every_layer_in_layer_0() -> None:
    setups = layers(2, FP8)
    assert check_layers(stored_right(FP8), setups).verdict is Verdict.IDENTICAL
    check = check_layers(stored_with_region_of_layer_0(setups[0], "scale"), setups)
    assert check.verdict is Verdict.VIOLATION
    assert [layer.results[0].stage for layer in check.layers if layer.verdict.failed] == ["key scales", "key scales"]
    assert str(check).splitlines()[1] == (
        "layer 1: VIOLATION - all scores exactly 0 while the reference's are not: a selection would be decided by ties "
        "alone; scale bytes in its pages are zero; layer 0's scale bytes equal layer 1's expected bytes"
    )


def test_a05_the_last_of_three_layers_is_in_layer_0() -> None:
    setups = layers(3, FP4)
    assert check_layers(stored_right(FP4), setups).verdict is Verdict.IDENTICAL
    text = str(check_layers(stored_with_region_of_layer_0(setups[0], "scale"), setups)).splitlines()
    assert "layer 0's scale bytes equal layer 2's expected bytes" in text[2]
    assert "equal layer 1's" not in "".join(text)


def test_a05_values_in_layer_0() -> None:
    setups = layers(2, FP8)
    text = str(check_layers(stored_with_region_of_layer_0(setups[0], "value"), setups)).splitlines()
    assert "value bytes in its pages are zero; layer 0's value bytes equal layer 1's expected bytes" in text[1]
    assert "scale bytes" not in text[1]


def test_a05_needs_two_layers_of_one_shape() -> None:
    with pytest.raises(ValueError, match=r"`check_layers\(setups=...\)` should be at least two .* got 1"):
        check_layers(stored_right(FP8), layers(1, FP8))


def test_a05_zero_scales_in_a_comparison() -> None:
    """The same seen from one layer: every score is 0, and that a tie decides is said beside it."""
    inputs = random_request(Geometry(heads=2, compress_ratio=1, topk=TOPK), TOPK + 1, 2, turned=False)
    setup = layers(1, FP8)[0]
    scales = torch.from_numpy(np.unique(setup.layout.addresses[:, setup.layout.value_bytes :]))

    def score(right: ReferenceCandidate, codes: Any, weights: Any, cache: torch.Tensor, *rest: Any) -> torch.Tensor:
        return right.score(codes, weights, cache.index_fill(1, scales, 0), *rest)

    passes(inputs, FP8)
    fails(
        judged(inputs, changed(FP8, score=score), FP8),
        Verdict.VIOLATION,
        "scores",
        "every wrong element is exactly 0 and the reference's is not",
    )


def page(page_size: int, head_dim: int = 128) -> Any:
    """As many keys as a page of 64, k = 8."""
    rope = head_dim // 2
    geometry = Geometry(heads=2, head_dim=head_dim, rope_dim=rope, page_size=page_size, compress_ratio=1, topk=8)
    return random_request(geometry, 64, 2)


INTERLEAVED = "values are {} in token-interleaved order, not values-then-scales: token {}'s values were {} bytes"


def test_a06_reader_takes_records_as_interleaved() -> None:
    inputs = page(64)
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, score=under("page_order", "token-interleaved", "score")), FP8)
    fails(
        report,
        Verdict.VIOLATION,
        "scores",
        "matches if page_order is token-interleaved instead of values-then-scales",
        INTERLEAVED.format("read", r"\d+:1", "read from") + " 132 to 259 of page",
        r"scales of \d+ of 96 tokens are read from other bytes: token 0's from bytes 128 to 131",
    )


def test_a06_writer_interleaves() -> None:
    inputs = page(64)
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, store_keys=under("page_order", "token-interleaved", "store_keys")), FP8)
    fails(report, Verdict.VIOLATION, "key scales", INTERLEAVED.format("written", r"\d+:\d+", "written to"))


def test_a06_tiles_where_rows_are_declared() -> None:
    inputs = page(32)
    passes(inputs, FP8)
    report = judged(inputs, changed(FP8, score=under("page_order", "tiles-16x16", "score")), FP8)
    fails(report, Verdict.VIOLATION, "scores", "values are read in tiles-16x16 order, not values-then-scales")


@pytest.mark.parametrize(("page_size", "hidden"), [(1, True), (2, False), (16, False)])
def test_a06_page_size_1_hides_it(page_size: int, hidden: bool) -> None:
    inputs = page(page_size)
    report = judged(inputs, changed(FP8, score=under("page_order", "token-interleaved", "score")), FP8, explain=False)
    assert report.verdict.passed == hidden


def test_a06_a_format_without_scales_has_one_order() -> None:
    inputs = page(16, head_dim=32)
    assert judged(inputs, ReferenceCandidate(EXACT.with_field("page_order", "token-interleaved")), EXACT).verdict.passed

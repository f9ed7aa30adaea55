"""A13: a 32-bit product of page and stride. A14: token numbers taken for page numbers when records move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import on_pages, random_request
from verdicts import changed

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.address_space import check_far_pages, far_view, offset_warning
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.moved import check_move
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.cache import key_layout, read_records, write_records
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
BF16 = PRESETS["sglang-v4-bf16"].conventions
STRIDE = 1_002_240


def far_setup(pages: list[int], conventions: Any = FP8) -> Setup:
    """Two rows over full pages of 64 keys with these numbers."""
    inputs = random_request(Geometry(heads=2, compress_ratio=1, topk=8), 64 * len(pages), 2, turned=False)
    return Setup(on_pages(inputs, pages), conventions, model("ieee-fp32"))


def narrow_products(
    right: ReferenceCandidate, codes: Any, weights: Any, cache: torch.Tensor, table: torch.Tensor, *rest: Any
) -> torch.Tensor:
    """Offsets as int32; a page at a wrapped, negative offset reads as zeros."""
    with np.errstate(over="ignore"):
        offsets = np.arange(cache.shape[0], dtype=np.int32) * np.int32(cache.stride(0))
    used = np.unique(table.numpy()[table.numpy() >= 0])
    near = torch.zeros(used.size, cache.shape[1], dtype=torch.uint8)
    for place, page in enumerate(used):
        if offsets[page] >= 0:
            near[place] = cache[int(page)]
    renumbered = np.where(table.numpy() < 0, -1, np.searchsorted(used, table.numpy())).astype(np.int32)
    return right.score(codes, weights, near, torch.from_numpy(renumbered), *rest)


def test_a13_warning_before_anything_runs() -> None:
    assert offset_warning(np.array([2142, 2143, -1]), STRIDE) == (
        "largest offset 2,147,800,320 needs 64-bit: page 2,143 x stride 1,002,240; "
        "32-bit products wrap from page 2,143 on"
    )
    assert offset_warning(np.array([2142, 5]), STRIDE) == ""
    assert offset_warning(np.array([], np.int32), STRIDE) == ""
    with pytest.raises(ValueError, match=r"`offset_warning\(stride=...\)` should be at least 1, got 0"):
        offset_warning(np.array([1]), 0)


def test_a13_first_page_past_2_31() -> None:
    setup = far_setup([2142, 2143])
    right = check_far_pages(ReferenceCandidate(FP8), setup, STRIDE)
    assert right.verdict.passed
    assert "needs 64-bit" in str(right)
    found = check_far_pages(changed(FP8, score=narrow_products), setup, STRIDE)
    assert found.verdict is Verdict.VIOLATION
    assert "all errors lie in physical page 2143" in found.notes
    assert "scores: every wrong element is exactly 0 and the reference's is not" in found.notes


def test_a13_several_pages_beyond_are_a_range_and_not_a_half() -> None:
    """Not the later logical pages: the physical numbers decide."""
    setup = far_setup([2150, 7, 2143, 2142], BF16)
    assert check_far_pages(ReferenceCandidate(BF16), setup, STRIDE).verdict.passed
    found = check_far_pages(changed(BF16, score=narrow_products), setup, STRIDE)
    assert found.verdict is Verdict.VIOLATION
    assert "all errors lie in physical page >= 2143" in found.notes


def test_a13_below_the_limit_a_narrow_product_is_right() -> None:
    setup = far_setup([2141, 2142])
    found = check_far_pages(changed(FP8, score=narrow_products), setup, STRIDE)
    assert found.verdict.passed
    assert found.warning == ""


def test_a13_pages_do_not_overlap() -> None:
    with pytest.raises(ValueError, match=r"`far_view\(stride=...\)` should be at least 128 \(a page\), got 127"):
        far_view(np.zeros((2, 128), np.uint8), np.array([0]), 127)


def moved_by_token(cache: torch.Tensor, source: torch.Tensor, destination: torch.Tensor, page_size: int) -> None:
    """A right move."""
    layout = key_layout(FP8.key, replace(Geometry(), page_size=page_size), FP8.page_order)
    write_records(cache.numpy(), layout, read_records(cache.numpy(), layout, source.numpy()), destination.numpy())


def moved_by_page(cache: torch.Tensor, source: torch.Tensor, destination: torch.Tensor, page_size: int) -> None:
    """The first axis counts pages, the arguments count tokens."""
    cache[destination] = cache[source].clone()


def moved_in_turn(cache: torch.Tensor, source: torch.Tensor, destination: torch.Tensor, page_size: int) -> None:
    """One after the other, so that a source may already be overwritten."""
    for i in range(len(source)):
        moved_by_token(cache, source[i : i + 1], destination[i : i + 1], page_size)


def test_a14_a_token_number_that_is_a_page_too() -> None:
    assert check_move(moved_by_token, FP8, [(2, 1)]).verdict is Verdict.IDENTICAL
    check = check_move(moved_by_page, FP8, [(2, 1)])
    assert check.verdict is Verdict.VIOLATION
    assert str(check).splitlines() == [
        "fails at page size 16, 64, not at 1",
        "  page size 16: token 1 does not hold token 2's bytes; 16 tokens that should not have changed did: "
        "page 1 was overwritten by page 2",
        "  page size 64: token 1 does not hold token 2's bytes; 64 tokens that should not have changed did: "
        "page 1 was overwritten by page 2",
    ]


def test_a14_across_pages_it_is_out_of_bounds() -> None:
    assert check_move(moved_by_token, FP8, [(70, 5)]).verdict is Verdict.IDENTICAL
    check = check_move(moved_by_page, FP8, [(70, 5)])
    assert check.verdict is Verdict.MALFORMED
    assert [(r.page_size, r.verdict.passed) for r in check.results] == [(1, True), (16, False), (64, False)]
    assert "the move raised IndexError" in str(check)


def test_a14_a_chain_of_moves_reads_its_sources_first() -> None:
    moves = [(2, 1), (1, 0)]
    assert check_move(moved_by_token, FP8, moves).verdict is Verdict.IDENTICAL
    check = check_move(moved_in_turn, FP8, moves)
    assert check.verdict is Verdict.VIOLATION
    assert "page size 1: token 0 does not hold token 1's bytes" in str(check)


def test_a14_only_values_are_moved() -> None:
    """A move that forgets the scale region: codes are right, the scale beside them is not."""

    def move(cache: torch.Tensor, source: torch.Tensor, destination: torch.Tensor, page_size: int) -> None:
        width = 128
        values = cache[:, : page_size * width].view(-1, page_size, width)
        picked = values[source // page_size, source % page_size].clone()
        values[destination // page_size, destination % page_size] = picked

    check = check_move(move, FP8, [(2, 1)])
    assert [r.moved for r in check.results] == [1, 1, 1]
    assert [r.unmoved for r in check.results] == [0, 0, 0]


@pytest.mark.parametrize("moves", [[], [(-1, 2)], [(1, 2), (3, 2)]])
def test_a14_moves_must_be_moves(moves: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"`check_move\(moves=...\)` should be"):
        check_move(moved_by_token, FP8, moves)

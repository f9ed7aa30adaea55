"""The plan of a scoring call: every tile once, in equal pieces, and where a block's first keys lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from paged_bytes import FP8, paged_case

from dsa_crosscheck.cuda_impl.build import load_emulated
from dsa_crosscheck.cuda_impl.ops.score import paged_scores, planned_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import SHARE_WORDS, ScorePlan, plan_scores

TILE, PAGES = 64, 32
HEAD = ("group", "first", "count", "request", "length 0", "length 1", "tiles", "ragged")


@dataclass
class Call:
    lengths: list[int]
    rows: int = 1  # of a group
    page_size: int = 64
    width: int | None = None  # columns of the scores

    @property
    def columns(self) -> int:
        return self.width or max(self.lengths)

    @property
    def groups(self) -> list[list[int]]:
        return [self.lengths[i : i + self.rows] for i in range(0, len(self.lengths), self.rows)]

    @property
    def requests(self) -> list[int]:
        """Of the groups."""
        return [7 * group % 5 for group in range(len(self.groups))]

    @property
    def table(self) -> np.ndarray:
        pages = -(-self.columns // self.page_size)
        table: np.ndarray = np.arange(5 * pages, dtype=np.int32).reshape(5, pages) * 3 + 1
        return table

    def shares(self, blocks: int) -> np.ndarray:
        """What the kernel under test writes, [blocks, 40]; every word that it leaves out stands out."""
        request_of_row = np.repeat(self.requests, self.rows)
        tensors = [torch.tensor(x, dtype=torch.int32) for x in (request_of_row, self.lengths)]
        out = torch.full((blocks, SHARE_WORDS), -77, dtype=torch.int32)
        load_emulated().plan_scores(
            torch.from_numpy(self.table), *tensors, out, self.page_size, self.columns, self.rows
        )
        result: np.ndarray = out.numpy()
        return result

    def expected(self, blocks: int) -> np.ndarray:
        """The same, from a list of all tiles."""
        line = [(group, tile) for group, lengths in enumerate(self.groups) for tile in range(-(-max(lengths) // TILE))]
        ragged = any(length < self.columns for length in self.lengths)
        shares = np.zeros((blocks, SHARE_WORDS), dtype=np.int32)
        for block, piece in enumerate(np.array_split(np.arange(len(line)), blocks)):
            shares[block, HEAD.index("ragged")] = ragged
            if len(piece) == 0:
                continue
            group, first = line[piece[0]]
            tiles = [line[i][1] for i in piece if line[i][0] == group]
            request = self.requests[group]
            lengths = (self.groups[group] + [0])[:2]
            shares[block, : len(HEAD)] = (group, first, len(tiles), request, *lengths, len(piece), ragged)
            keys = np.arange(tiles[0] * TILE, min((tiles[-1] + 1) * TILE, max(lengths)))
            pages = self.table[request, np.unique(keys // self.page_size)[:PAGES]]
            shares[block, len(HEAD) : len(HEAD) + len(pages)] = pages
        return shares


CALLS = {
    "one row": Call([1000]),
    "one key": Call([1]),
    "wider than its row": Call([130], width=300),
    "equal rows": Call([512] * 9),
    "ragged rows": Call([700, 64, 65, 1, 3000, 129, 128]),
    "empty rows": Call([0, 0, 200, 0, 0, 1, 0, 64, 0]),
    "nothing": Call([0, 0, 0], width=64),
    "more rows than threads": Call([int(n) for n in np.random.default_rng(0).integers(0, 300, 1300)]),
    "two rows a request": Call([500, 501, 64, 65, 0, 0, 300, 2], rows=2),
    "only a first row is short": Call([500, 501], rows=2),
    "only a second row is short": Call([501, 500], rows=2),
    "more pairs than threads": Call([int(n) for n in np.random.default_rng(1).integers(0, 200, 1200)], rows=2),
    "more tiles than 16 bits count": Call([TILE * 70000, TILE], page_size=65536),
    "large pages": Call([5000, 3, 640], page_size=256),
    "small pages": Call([333, 40, 129], page_size=16),
    "odd pages": Call([333, 40, 129], page_size=48),
    "more pages than a share names": Call([64 * 100, 64 * 40]),
}


@pytest.mark.parametrize("blocks", [1, 2, 7, 132])
@pytest.mark.parametrize("name", CALLS)
def test_shares_are_equal_pieces_of_all_tiles(name: str, blocks: int) -> None:
    np.testing.assert_array_equal(CALLS[name].shares(blocks), CALLS[name].expected(blocks))


def test_the_longest_row() -> None:
    most = 2**31 - 1
    shares = Call([most], page_size=2**26).shares(2)
    tiles = 2**24
    assert shares[:, : len(HEAD)].tolist() == [[0, i * tiles, tiles, 0, most, 0, tiles, 0] for i in range(2)]
    assert shares[:, len(HEAD) :].tolist() == [[3 * (16 * i + j) + 1 for j in range(16)] + [0] * 16 for i in range(2)]


@pytest.mark.parametrize(
    ("rows", "together", "columns", "most", "blocks"),
    [
        (1, 1, 64, 132, 1),
        (1, 1, 65, 132, 2),
        (4, 1, 640, 132, 40),
        (4, 2, 640, 132, 20),
        (64, 1, 8192, 132, 132),
        (2**6, 1, 2**31 - 1, 132, 0),  # 2^31 tiles
        (2**6, 2, 2**31 - 1, 132, 132),
        (2**6 - 1, 1, 2**31 - 1, 132, 132),
    ],
)
def test_no_more_blocks_than_tiles_and_no_more_tiles_than_31_bits(
    rows: int, together: int, columns: int, most: int, blocks: int
) -> None:
    probe = load_emulated([Path(__file__).parent / "probes" / "layout_probe.cu"])
    assert probe.layout(rows, together, columns, most) == blocks


def plan_of(case: object, **changes: object) -> ScorePlan:
    _, weights, cache, table, request, lengths = case.arguments  # type: ignore[attr-defined]
    given = {"codec": FP8, "heads": weights.shape[1], "page_size": 64, "pages": cache.shape[0]} | changes
    return plan_scores(table, request, lengths, **given)


def test_a_plan_gives_the_scores_of_the_whole_call() -> None:
    case = paged_case(FP8, 64, lengths=[300, 0, 150, 20], heads=8, seed=2)
    expected = paged_scores(*case.arguments, codec=FP8, page_size=64)
    plan = plan_of(case)
    for _ in range(2):
        assert torch.equal(planned_scores(*case.arguments[:3], plan), expected)


def test_a_plan_stays_the_plan_of_what_it_was_made_of() -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    expected = paged_scores(*case.arguments, codec=FP8, page_size=64)
    plan = plan_of(case)
    for tensor in case.arguments[3:]:
        tensor.fill_(-1)
    assert torch.equal(planned_scores(*case.arguments[:3], plan), expected)


def test_tensors_of_inference_mode_are_taken() -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    with torch.inference_mode():
        given = [tensor.clone() for tensor in case.arguments]
    assert torch.equal(
        paged_scores(*given, codec=FP8, page_size=64), paged_scores(*case.arguments, codec=FP8, page_size=64)
    )


@pytest.mark.parametrize(("unit", "name"), [("wgmma", "codes"), ("wgmma", "cache"), ("mma", "cache")])
def test_what_a_planned_unit_reads_has_to_start_evenly(unit: str, name: str) -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    given = dict(zip(("codes", "weights", "cache"), case.arguments, strict=False))
    shifted = torch.empty(given[name].numel() + 4, dtype=torch.uint8)[4:].view_as(given[name])
    given[name] = shifted.copy_(given[name])
    with pytest.raises(ValueError, match=rf"planned_scores\({name}=.*multiple of 16 bytes for unit '{unit}'"):
        planned_scores(**given, plan=replace(plan_of(case), unit=unit))


def test_other_sizes_than_the_plans_are_named() -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    codes, weights, cache = case.arguments[:3]
    plan = plan_of(case)
    with pytest.raises(ValueError, match=r"planned_scores\(codes=.*rows = 2, got .*\[1, 8, 128\]"):
        planned_scores(codes[:1], weights[:1], cache, plan)
    with pytest.raises(ValueError, match=r"planned_scores\(plan=.*should be for 4 heads, got 8"):
        planned_scores(codes[:, :4].contiguous(), weights[:, :4].contiguous(), cache, plan)
    with pytest.raises(ValueError, match=r"planned_scores\(plan=.*should be for \d+ pages, got \d+"):
        planned_scores(codes, weights, cache[:-1], plan)
    with pytest.raises(ValueError, match=r"planned_scores\(weights=.*torch.float32"):
        planned_scores(codes, weights.double(), cache, plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 0}, r"plan_scores\(heads=.*positive integer, got 0"),
        ({"page_size": 0}, r"plan_scores\(page_size=.*positive integer, got 0"),
        ({"pages": -1}, r"plan_scores\(pages=.*at least 0, got -1"),
        ({"pages": 1}, r"plan_scores\(block_table=.*pages in \[0, 1\)"),
        ({"unit": "tensor"}, r"plan_scores\(unit=.*one of .*got 'tensor'"),
        ({"unit": "mma"}, r"plan_scores\(unit=.*device and the sizes allow, got 'mma'"),
    ],
)
def test_bad_arguments_of_a_plan_are_named(changes: dict[str, object], message: str) -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    with pytest.raises(ValueError, match=message):
        plan_of(case, **changes)


def test_tensors_of_a_plan_are_held_to_what_the_call_takes() -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    table, request, lengths = case.arguments[3:]
    given = {"codec": FP8, "heads": 8, "page_size": 64, "pages": case.arguments[2].shape[0]}
    with pytest.raises(ValueError, match=r"plan_scores\(block_table=.*got list"):
        plan_scores(table.tolist(), request, lengths, **given)
    with pytest.raises(ValueError, match=r"plan_scores\(block_table=.*not contiguous"):
        plan_scores(torch.cat([table, table], 1)[:, : table.shape[1]], request, lengths, **given)


def test_lengths_below_a_bound_that_int32_cannot_hold() -> None:
    case = paged_case(FP8, 64, lengths=[300, 20], heads=8, seed=2)
    table, request, lengths = case.arguments[3:]
    plan = plan_scores(table.clamp(min=0), request, lengths, codec=FP8, heads=8, page_size=2**30, pages=1000)
    assert plan.width == 300

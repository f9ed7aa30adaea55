"""A15: two formulas for the visible length. A16: a query that sees its own unfinished group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from handmade import EXACT, aimed, along_first, inputs_of
from verdicts import fails, judged, line, passes

from dsa_crosscheck.compare import Verdict
from dsa_crosscheck.compare.candidates.reference import FusedReference
from dsa_crosscheck.compare.repeatability.batches import chunk_of
from dsa_crosscheck.compare.visible_lengths import check_visible_lengths
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs


def reserved(seq_len: int, next_n: int, ratio: int) -> list[int]:
    """The host's: groups complete at each row's position."""
    return [max(0, seq_len - next_n + row + 1) // ratio for row in range(next_n)]


def written(seq_len: int, next_n: int, ratio: int) -> list[int]:
    """The kernel's: the committed groups, one fewer for each later row."""
    return [max(0, seq_len // ratio - next_n + row + 1) for row in range(next_n)]


def rounded_up(seq_len: int, next_n: int, ratio: int) -> list[int]:
    """The groups begun at each row's position."""
    return [-(-max(0, seq_len - next_n + row + 1) // ratio) for row in range(next_n)]


def test_a15_right_at_ratio_1_only() -> None:
    assert check_visible_lengths(reserved).verdict is Verdict.IDENTICAL
    table = check_visible_lengths(written)
    assert table.verdict is Verdict.VIOLATION
    assert table.sentence == "formula correct for ratio 1 only"
    (row,) = (r for r in table.rows if (r.ratio, r.next_n, r.seq_len) == (4, 4, 11))
    assert (row.expected, row.actual) == ((2, 2, 2, 2), (0, 0, 1, 2))
    assert "4       4      11  2,2,2,2       0,0,1,2" in str(table)


def test_a15_single_token_decode_hides_it() -> None:
    assert check_visible_lengths(written, next_n=[1]).verdict is Verdict.IDENTICAL
    assert check_visible_lengths(written, ratios=[4]).sentence == "formula correct for next_n 1 only"


def test_a15_groups_begun_are_not_groups_finished() -> None:
    assert check_visible_lengths(rounded_up).sentence == "formula correct for ratio 1 only"
    assert check_visible_lengths(lambda n, next_n, ratio: [n] * next_n, ratios=[4]).sentence == (
        "formula correct for no ratio and no next_n"
    )
    assert check_visible_lengths(rounded_up, seq_lens=[8], next_n=[1]).verdict is Verdict.IDENTICAL


def test_a15_a_formula_gives_one_count_a_row() -> None:
    with pytest.raises(ValueError, match=r"should return 1 counts for next_n=1, got 2"):
        check_visible_lengths(lambda n, next_n, ratio: [0, 0])


def prefill(positions: list[int], ratio: int = 4, keys: int = 2) -> Inputs:
    """Rows of one prefill over keys of which each later one scores higher; k = 1."""
    geometry = Geometry(heads=1, head_dim=8, rope_dim=2, page_size=16, compress_ratio=ratio, topk=1)
    scores = np.linspace(0.5, 2.0, keys)
    query = along_first(len(positions), 1, 8)
    gate = 1 + np.arange(len(positions))[:, None] / 64
    return inputs_of(geometry, [aimed(scores, 8)], [(0, p) for p in positions], query, gate)


INCLUSIVE = FusedReference(EXACT.with_field("causal", "own-group"))
"""Sees p // ratio + 1 groups, as far as they are stored."""


def test_a16_a_query_selects_a_group_with_tokens_after_it() -> None:
    inputs = prefill(list(range(4, 8)))
    passes(inputs, EXACT, FusedReference(EXACT))
    fails(
        judged(inputs, INCLUSIVE, EXACT),
        Verdict.MALFORMED,
        "end to end",
        "row 0 at position 4 selected key 1 and sees 1; key 1 depends on tokens 5 to 7: not causal",
        "matches if causal is own-group instead of finished-groups",
    )


def test_a16_every_position_of_the_prefill() -> None:
    inputs = prefill(list(range(8)))
    passes(inputs, EXACT, FusedReference(EXACT))
    report = judged(inputs, INCLUSIVE, EXACT, explain=False)
    fails(report, Verdict.MALFORMED, "end to end", "6 slots hold keys beyond .* row 0 at position 0 selected key 0")


@pytest.mark.parametrize(("positions", "hidden"), [([3, 7], True), ([3, 6], False)])
def test_a16_ends_of_groups_hide_it(positions: list[int], hidden: bool) -> None:
    assert judged(prefill(positions), INCLUSIVE, EXACT, explain=False).verdict.passed == hidden


def test_a16_ratio_1_has_no_unfinished_group() -> None:
    assert judged(prefill(list(range(8)), ratio=1, keys=8), INCLUSIVE, EXACT).verdict.passed


def test_a16_another_ratio() -> None:
    inputs = prefill([2, 3, 4], ratio=2, keys=3)
    passes(inputs, EXACT, FusedReference(EXACT))
    report = judged(inputs, INCLUSIVE, EXACT, explain=False)
    fails(
        report, Verdict.MALFORMED, "end to end", "position 2 selected key 1 and sees 1; key 1 depends on token 3: not"
    )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8])
def test_a16_chunks_of_a_prefill_give_the_same_result(size: int) -> None:
    """The right rule whatever the chunk; the inclusive one only where every chunk ends with a group."""
    inputs = prefill(list(range(12)), keys=3)

    def chunked(candidate: Any) -> np.ndarray:
        chunks = [np.arange(start, min(start + size, 12)) for start in range(0, 12, size)]
        results = [candidate.run(chunk_of(inputs, chunk, "finished-groups")) for chunk in chunks]
        return np.concatenate([result["selection"].numpy() for result in results])

    whole = FusedReference(EXACT).run(inputs)["selection"].numpy()
    assert np.array_equal(chunked(FusedReference(EXACT)), whole)
    assert np.array_equal(chunked(INCLUSIVE), INCLUSIVE.run(inputs)["selection"].numpy()) == (size % 4 == 0)


def test_a16_a_comparison_looks_at_chunks_itself() -> None:
    """A candidate that is right on the whole batch, and wrong when its chunk ends inside a group."""

    class PerChunk(FusedReference):
        """Takes the newest stored key whenever its chunk does not end with a group."""

        def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
            out = super().run(inputs)
            if inputs.query_positions.max() % inputs.geometry.compress_ratio != 3:
                out["selection"][out["selection"] > 0] -= 1
            return out

    inputs = prefill(list(range(12)), keys=3)
    passes(inputs, EXACT, FusedReference(EXACT), repeat=1)
    report = judged(inputs, PerChunk(EXACT), EXACT, explain=False, repeat=1)
    fails(
        report,
        Verdict.VIOLATION,
        "batch invariance",
        r"results of run depend on the batch \((chunks of \d|rows alone)\)",
    )
    assert line(report, "end to end").verdict.passed


def test_a16_no_rows_before_the_first_group() -> None:
    inputs = replace(prefill([0, 1, 2]), key_counts=np.array([0]), slots=np.array([-1, -1]))
    assert judged(inputs, INCLUSIVE, EXACT, explain=False).verdict is Verdict.VACUOUS

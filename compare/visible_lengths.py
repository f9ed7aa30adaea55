"""A formula for how many keys each row of a multi-token decode step sees, swept over small sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.causal import visible_keys

Formula = Callable[[int, int, int], Sequence[int]]
"""``formula(seq_len, next_n, ratio)``: visible keys of each of the last ``next_n`` tokens, oldest first."""

RATIOS = (1, 4)
NEXT_N = (1, 2, 3, 4)
SEQ_LENS = tuple(range(13))


@dataclass(frozen=True)
class LengthRow:
    """One combination: what each row should see, and what the formula says."""

    ratio: int
    next_n: int
    seq_len: int
    expected: tuple[int, ...]
    actual: tuple[int, ...]

    @property
    def right(self) -> bool:
        """Whether every row's count agrees."""
        return self.expected == self.actual


@dataclass(frozen=True)
class LengthTable:
    """Every combination of a sweep, in the order ratio, next_n, length."""

    rows: tuple[LengthRow, ...]

    @property
    def verdict(self) -> Verdict:
        """``VIOLATION`` when any count is wrong."""
        return Verdict.IDENTICAL if all(row.right for row in self.rows) else Verdict.VIOLATION

    @property
    def sentence(self) -> str:
        """For which ratios, and else for which next_n, the formula is right."""
        if self.verdict.passed:
            return "formula correct for every ratio, next_n and length tried"
        for name, label in (("ratio", "ratio"), ("next_n", "next_n")):
            tried = sorted({getattr(row, name) for row in self.rows})
            good = [v for v in tried if all(row.right for row in self.rows if getattr(row, name) == v)]
            if good:
                return f"formula correct for {label} {' and '.join(map(str, good))} only"
        return "formula correct for no ratio and no next_n"

    def wrong(self) -> tuple[LengthRow, ...]:
        """The rows that disagree."""
        return tuple(row for row in self.rows if not row.right)

    def __str__(self) -> str:
        """The sentence, then every combination that disagrees."""
        lines = [self.sentence, "ratio  next_n  length  expected      actual"]
        lines += [
            f"{row.ratio:5}  {row.next_n:6}  {row.seq_len:6}  {_counts(row.expected):12}  {_counts(row.actual)}"
            for row in self.wrong()
        ]
        return "\n".join(lines if self.wrong() else lines[:1])


def check_visible_lengths(
    formula: Formula,
    *,
    ratios: Iterable[int] = RATIOS,
    next_n: Iterable[int] = NEXT_N,
    seq_lens: Iterable[int] = SEQ_LENS,
) -> LengthTable:
    """Compare ``formula`` with the finished groups at each row's position.

    ``seq_len`` counts the ``next_n`` tokens of the step; their row i is at position seq_len - next_n + i.
    A row before the start (next_n > seq_len) sees 0. ``ValueError`` when the formula returns another
    number of counts than ``next_n``.
    """
    steps = tuple(next_n)
    lens = tuple(seq_lens)
    rows = []
    for ratio in ratios:
        for n in steps:
            for length in lens:
                position = np.maximum(np.arange(length - n, length), -1)
                expected = visible_keys(position, ratio, "finished-groups")
                actual = tuple(int(count) for count in formula(length, n, ratio))
                if len(actual) != n:
                    raise ValueError(
                        f"`check_visible_lengths(formula=...)` should return {n} counts for next_n={n}, "
                        f"got {len(actual)}"
                    )
                rows.append(LengthRow(ratio, n, length, tuple(int(count) for count in expected), actual))
    return LengthTable(tuple(rows))


def _counts(counts: tuple[int, ...]) -> str:
    return ",".join(str(count) for count in counts)

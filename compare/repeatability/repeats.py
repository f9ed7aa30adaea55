"""The same call again and again: bytes of scores, set of keys and order of keys as three answers.

A result that changes from one run to the next has no error that could be measured, so scores or sets
that change are refused. An order that changes is reported, and refused only where the conventions
declare one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.repeatability.bits import bits_differ, first_place
from dsa_crosscheck.compare.repeatability.budget import Budget
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict


@dataclass(frozen=True)
class Produced:
    """What one call made: ``scores`` float32 [rows, n], ``selection`` int [rows, topk]; None = not shown."""

    scores: np.ndarray | None = None
    selection: np.ndarray | None = None


@dataclass
class _Answer:
    """One of the three answers: ``differing`` repeats, and where and how the first of them differed."""

    name: str
    differing: int = 0
    at: str = ""
    seen: str = ""
    most: int = 0

    def add(self, count: int, describe: Callable[[], tuple[str, str]]) -> None:
        """Note a repeat with ``count`` differing elements; none is no difference."""
        if count:
            self.differing += 1
            self.most = max(self.most, count)
            if not self.at:
                self.at, self.seen = describe()


@dataclass
class _Answers:
    scores: _Answer = field(default_factory=lambda: _Answer("scores"))
    keys: _Answer = field(default_factory=lambda: _Answer("set"))
    order: _Answer = field(default_factory=lambda: _Answer("order"))


def repeat(
    run: Callable[[], Produced],
    first: Produced,
    lengths: np.ndarray,
    count: int,
    *,
    ordered: bool,
    prefix: str = "",
) -> list[StageResult]:
    """Call ``run`` up to ``count`` times within the time limit and compare each result with ``first``.

    One line for each answer that the results allow, named ``repeat: <prefix><answer>``; ``elements``
    are the repeats made and ``differing`` those that differ. ``ordered``: the conventions declare an
    order of the selected keys. A repeat that raises or returns something malformed gives one failing
    line instead.
    """
    answers, budget = _Answers(), Budget()
    while budget.calls < count and budget.open:
        try:
            again = budget.time(run)
        except CandidateFault as fault:
            note = f"repeat {budget.calls} of {count}: {fault}"
            return [StageResult(f"repeat: {prefix}calls", fault.verdict, budget.calls, 1, note=note)]
        _compare(first, again, lengths, answers)
    limit = budget.shortfall(budget.calls, count, "repeats")
    results = []
    if first.scores is not None:
        size = f"at most {answers.scores.most:,} of {int(lengths.sum()):,} values"
        results.append(_line(answers.scores, prefix, budget.calls, Verdict.REFUSED, size, limit))
    if first.selection is not None:
        size = f"at most {answers.keys.most:,} of {first.selection.shape[0]:,} rows"
        results.append(_line(answers.keys, prefix, budget.calls, Verdict.REFUSED, size, limit))
        unstable = Verdict.REFUSED if ordered else Verdict.WITHIN_BOUND
        size = f"at most {answers.order.most:,} of {first.selection.shape[0]:,} rows"
        results.append(_line(answers.order, prefix, budget.calls, unstable, size, limit))
    return results


def _compare(first: Produced, again: Produced, lengths: np.ndarray, answers: _Answers) -> None:
    if first.scores is not None and again.scores is not None:
        old, new = first.scores, again.scores
        differ = bits_differ(old, new, lengths)

        def scores_at() -> tuple[str, str]:
            at = first_place(differ)
            return f"row {at[0]} key {at[1]}", f"({at[0]},{at[1]}), values {old[at]!s} vs {new[at]!s}"

        answers.scores.add(int(differ.sum()), scores_at)
    if first.selection is not None and again.selection is not None:
        _compare_selections(first.selection, again.selection, answers)


def _compare_selections(old: np.ndarray, new: np.ndarray, answers: _Answers) -> None:
    other_set = (np.sort(old, axis=1) != np.sort(new, axis=1)).any(axis=1)
    other_order = ~other_set & (old != new).any(axis=1)

    def keys_at() -> tuple[str, str]:
        row = int(np.argmax(other_set))
        lost, found = np.setdiff1d(old[row], new[row]), np.setdiff1d(new[row], old[row])
        return f"row {row}", f"row {row}, keys {_few(lost)} vs {_few(found)}"

    def order_at() -> tuple[str, str]:
        row = int(np.argmax(other_order))
        rank = int(np.argmax(old[row] != new[row]))
        return f"row {row} rank {rank}", f"row {row} rank {rank}, keys {old[row, rank]} vs {new[row, rank]}"

    answers.keys.add(int(other_set.sum()), keys_at)
    answers.order.add(int(other_order.sum()), order_at)


def _line(answer: _Answer, prefix: str, made: int, unstable: Verdict, size: str, limit: str) -> StageResult:
    name = f"repeat: {prefix}{answer.name}"
    if not answer.differing:
        return StageResult(name, Verdict.IDENTICAL, made, 0, note=limit)
    what = "not reproducible" if unstable is Verdict.REFUSED else "the same keys in another order, none is declared"
    note = f"{what}: {answer.differing} of {made} repeats differ, first at {answer.seen}; {size}"
    return StageResult(
        name, unstable, made, answer.differing, at=answer.at, note="; ".join(filter(None, (note, limit)))
    )


def _few(keys: np.ndarray) -> str:
    """The first few keys; nothing where only the number of copies of a key differs."""
    return ", ".join(str(int(k)) for k in keys[:3]) + (", ..." if keys.size > 3 else "") if keys.size else "none"

"""How many scores are equal, zero or no number where a selection has to decide."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.select import ranked


@dataclass(frozen=True)
class TieCensus:
    """Counts of each row's visible scores, all int64 [rows].

    ``at_kth``: scores equal to the k-th largest; ``left_out``: how many of those are not selected, so
    that a tie rule decides which (0: no tie straddles the k-th place). ``zeros`` of either sign,
    ``negative_zeros`` among them; ``nan``; ``minus_infinity``. ``duplicates``: visible keys whose
    record has the same bytes as an earlier one of the row.
    """

    at_kth: np.ndarray
    left_out: np.ndarray
    zeros: np.ndarray
    negative_zeros: np.ndarray
    nan: np.ndarray
    minus_infinity: np.ndarray
    duplicates: np.ndarray

    @property
    def sentence(self) -> str:
        """One line for a reader, empty when there is nothing to say."""
        parts = []
        decided = int((self.left_out > 0).sum())
        if decided:
            most = int(self.at_kth.max())
            parts.append(f"equal scores at the k-th place decide {decided} of {self.at_kth.size} rows (up to {most:,})")
        for name, label in (
            ("zeros", "zeros"),
            ("negative_zeros", "of them -0.0"),
            ("nan", "NaN"),
            ("minus_infinity", "-inf"),
            ("duplicates", "repeated keys"),
        ):
            total = int(getattr(self, name).sum())
            if total:
                parts.append(f"{total:,} {label}")
        return ", ".join(parts)

    def record(self) -> dict[str, object]:
        """Totals, how many rows a tie decides, and every row's counts, as plain values."""
        rows = {field.name: getattr(self, field.name).tolist() for field in fields(self)}
        totals = {name: sum(counts) for name, counts in rows.items() if name not in ("at_kth", "left_out")}
        return {"rows_decided_by_ties": int((self.left_out > 0).sum()), **totals, "rows": rows}


def tie_census(setup: Setup) -> TieCensus:
    """Census of the float32 scores that both selectors receive."""
    scores, lengths = setup.selector_input
    return count_ties(scores, lengths, setup.inputs.geometry.topk, setup.conventions.topk_nan, repeated_keys(setup))


def count_ties(
    scores: np.ndarray, lengths: np.ndarray, topk: int, nan: str, duplicates: np.ndarray | None = None
) -> TieCensus:
    """Census of ``scores`` [rows, n], of which each row's first ``lengths[row]`` count.

    ``nan`` ranks NaN as ``Conventions.topk_nan``; NaN at the k-th place ties with NaN. A row of at most
    ``topk`` scores has no k-th place that decides. ``duplicates`` [rows] is taken as it is, zeros
    when None.
    """
    counts = {field.name: np.zeros(lengths.size, np.int64) for field in fields(TieCensus)}
    if duplicates is not None:
        counts["duplicates"] = duplicates.astype(np.int64)
    for row, length in enumerate(lengths):
        seen = scores[row, :length]
        counts["zeros"][row] = (seen == 0).sum()
        counts["negative_zeros"][row] = ((seen == 0) & np.signbit(seen)).sum()
        counts["nan"][row] = np.isnan(seen).sum()
        counts["minus_infinity"][row] = np.isneginf(seen).sum()
        if length > topk:
            rank = ranked(seen, nan)
            kth = np.partition(rank, length - topk)[length - topk]
            equal = int((rank == kth).sum())
            counts["at_kth"][row] = equal
            counts["left_out"][row] = equal - (topk - int((rank > kth).sum()))
    return TieCensus(**counts)


def repeated_keys(setup: Setup) -> np.ndarray:
    """Visible keys of each row whose record bytes an earlier key of its request has, int64 [rows]."""
    inputs, lengths = setup.inputs, setup.trace.lengths
    repeats = np.zeros(lengths.size, np.int64)
    for request in np.unique(inputs.request_of_row):
        mine = np.flatnonzero((inputs.key_request == request) & (inputs.slots >= 0))
        mine = mine[np.argsort(inputs.key_index[mine], kind="stable")]
        records = np.ascontiguousarray(setup.trace.records[mine])
        again = np.ones(mine.size, bool)
        whole = records.view(np.dtype((np.void, records.shape[1]))).reshape(-1)
        again[np.unique(whole, return_index=True)[1]] = False
        index = inputs.key_index[mine]
        for row in np.flatnonzero(inputs.request_of_row == request):
            repeats[row] = int((again & (index < lengths[row])).sum())
    return repeats

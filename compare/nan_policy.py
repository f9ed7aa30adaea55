"""What a selector does with NaN scores: rank them first, last or by sign, or let them out as indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, call, expect
from dsa_crosscheck.compare.contract import check_contract
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.conventions import Conventions

KEYS = 8
TOPK = 4
NAN_AT = 5


@dataclass(frozen=True)
class NanPolicy:
    """``policy``: ``first``, ``last``, a sentence for other legal behaviour, or ``none`` when a probe
    breaks the contract of a selection. ``verdict`` judges it by the declared ``Conventions.topk_nan``."""

    policy: str
    verdict: Verdict
    note: str


def nan_policy(candidate: Any, conventions: Conventions) -> NanPolicy:
    """Ask ``candidate.select`` for 4 of 8 scores: with one NaN of either sign, and of nothing but NaN.

    The NaN is chosen (``first``), left out (``last``), or one sign is. A row of NaN must still give
    four different keys. ``MALFORMED``: an index out of range, a repeated or a missing one, or a call that
    raises; ``VIOLATION``: another policy than the declared one.
    """
    scores = np.arange(KEYS, 0, -1).astype(np.float32)
    chosen = {}
    try:
        for sign in (1.0, -1.0):
            row = scores.copy()
            row[NAN_AT] = np.copysign(np.float32(np.nan), np.float32(sign))
            chosen[sign] = NAN_AT in _selected(candidate, row, conventions)
            _selected(candidate, np.full(KEYS, row[NAN_AT], np.float32), conventions)
    except CandidateFault as fault:
        return NanPolicy("none", fault.verdict, str(fault))
    if chosen[1.0] != chosen[-1.0]:
        first = "+NaN" if chosen[1.0] else "-NaN"
        policy = f"{first} ranks first and the NaN of the other sign last"
        return NanPolicy(policy, Verdict.VIOLATION, f"{policy}; declared is {conventions.topk_nan}")
    policy = "first" if chosen[1.0] else "last"
    agrees = policy == conventions.topk_nan
    note = f"NaN of either sign ranks {policy}" + ("" if agrees else f"; declared is {conventions.topk_nan}")
    return NanPolicy(policy, Verdict.IDENTICAL if agrees else Verdict.VIOLATION, note)


def _selected(candidate: Any, row: np.ndarray, conventions: Conventions) -> np.ndarray:
    lengths = np.array([KEYS], np.int32)
    (out,) = call(candidate, "select", row[None], lengths, TOPK)
    got = expect("select", "indices", out, (1, TOPK), (np.int32, np.int64))
    contract = check_contract(got, lengths, TOPK, conventions.topk_padding)
    if contract.faults:
        count = int(np.isnan(row).sum())
        sign = "-NaN" if np.signbit(row[np.isnan(row)][0]) else "+NaN"
        raise CandidateFault(
            Verdict.MALFORMED,
            f"with {count} {sign} among {KEYS} scores: {'; '.join(contract.faults)}: {got[0].tolist()}",
        )
    return contract.chosen[0]

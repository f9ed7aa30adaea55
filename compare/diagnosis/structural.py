"""Named mistakes that no field expresses: which of them reproduces what was observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.code_certificate import code_order
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.diagnosis.explanation import EXPLAINS, Cause, Residual, Trial
from dsa_crosscheck.compare.mutants.faults import FAULTS, Fault
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages import CHECKS, Outputs
from dsa_crosscheck.compare.stages.query import WEIGHT_ROUNDINGS
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.reference.bounds import pool_bound
from dsa_crosscheck.reference.cache import read_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.models import FP32_TINY
from dsa_crosscheck.reference.record import unpack_record

SCORES = 1 << 21
"""Most scores (or key elements) of a comparison that faults are still run on."""
CODES_APART = 0.01
"""Share of codes that may be one step from the fault's, and of bytes outside records that may differ
from its, as rounding makes them."""


@dataclass(frozen=True)
class StructuralSearch:
    """Faults that reproduce the output, all that were tried, and whether any was left out."""

    causes: tuple[Cause, ...]
    trials: tuple[Trial, ...]
    exhausted: bool


def search_faults(evidence: Evidence, setup: Setup, method: str) -> StructuralSearch:
    """Put each fault of ``method`` into the reference, run it on the same input and compare.

    A fault is the cause if its output is wrong too and agrees with the observed one: floats within
    the stage's own bound, codes identical but for a few of one step, indices identical.
    """
    if not evidence.has(method) or method not in CHECKS:
        return StructuralSearch((), (), True)
    if _work(setup, method) > SCORES:
        return StructuralSearch((), (), False)
    observed = evidence.outputs[method]
    right = ReferenceCandidate(setup.conventions)
    before = Residual.of([r for r in evidence.results if evidence.method(r.stage) == method])
    causes, trials = [], []
    for fault in FAULTS.values():
        if fault.stage != method or fault.needs_repeat:
            continue
        agrees = _reproduces(fault, right, observed, setup)
        trials.append(Trial(method, fault.name, EXPLAINS if agrees else "does not", None))
        if agrees:
            sentence = f"matches the reference with one mistake: {fault.what}"
            causes.append(Cause(method, fault.name, (), before, Residual(0, 0, None), sentence))
    return StructuralSearch(tuple(causes), tuple(trials), True)


def _work(setup: Setup, method: str) -> int:
    if method == "store_keys":
        return setup.inputs.keys * setup.inputs.geometry.head_dim // 8
    return int(setup.trace.lengths.sum())


def _reproduces(fault: Fault, right: ReferenceCandidate, observed: Outputs, setup: Setup) -> bool:
    check = CHECKS[fault.stage]
    try:
        with np.errstate(all="ignore"):
            made = check.run(fault.apply(right, setup.inputs), setup)
            wrong = any(r.verdict.failed for r in check.judge(made, setup))
    except (CandidateFault, ValueError, IndexError, RuntimeError):
        return False  # a fault that needs another input (a skipped key, a second page) can't be this one
    return wrong and _AGREE[fault.stage](made, observed, setup)


def _pools_agree(made: Outputs, observed: Outputs, setup: Setup) -> bool:
    assert setup.inputs.kv_score is not None
    assert setup.inputs.position_bias is not None
    return _near(made[0], observed[0], pool_bound(setup.inputs.kv_score, setup.inputs.position_bias, setup.model))


def _stores_agree(made: Outputs, observed: Outputs, setup: Setup) -> bool:
    """Records that agree, and as nearly the same bytes wherever else something was written."""
    slots = setup.inputs.slots[setup.inputs.slots >= 0]
    theirs, mine = (read_records(cache, setup.layout, slots) for cache in (observed[1], made[1]))
    if not _codes_agree(mine, theirs, setup.conventions.key, setup.inputs.geometry.head_dim):
        return False
    pages, offsets = np.divmod(slots, setup.layout.page_size)
    outside = np.ones(made[1].shape, bool)
    outside[pages[:, None], setup.layout.addresses[offsets]] = False
    written = outside & ((made[1] != made[0]) | (observed[1] != observed[0]))
    return int((written & (made[1] != observed[1])).sum()) <= CODES_APART * int(written.sum())


def _queries_agree(made: Outputs, observed: Outputs, setup: Setup) -> bool:
    if not _codes_agree(made[0], observed[0], setup.conventions.query, setup.inputs.geometry.head_dim):
        return False
    roundings = 2 * setup.model.gamma(WEIGHT_ROUNDINGS)
    return _near(made[1], observed[1], roundings * np.abs(made[1].astype(np.float64)) + FP32_TINY)


def _scores_agree(made: Outputs, observed: Outputs, setup: Setup) -> bool:
    seen = visible(setup.trace.lengths, observed[0].shape[1])
    return _near(made[0][seen], observed[0][seen], setup.shared_scores[1][seen])


def _selections_agree(made: Outputs, observed: Outputs, setup: Setup) -> bool:
    if setup.conventions.topk_order == "any":
        return np.array_equal(np.sort(made[0], axis=1), np.sort(observed[0], axis=1))
    return np.array_equal(made[0], observed[0])


def _codes_agree(made: np.ndarray, observed: np.ndarray, codec: Codec, head_dim: int) -> bool:
    first, second = (unpack_record(records, codec, head_dim) for records in (made, observed))
    if codec.scale_bytes and first.scales.size:
        with np.errstate(all="ignore"):
            near = np.abs(first.scales / second.scales - 1.0) <= 8 * np.finfo(np.float32).eps
        if not (near | (first.scales == second.scales) | (np.isnan(first.scales) & np.isnan(second.scales))).all():
            return False
    steps = np.abs(code_order(first.codes, codec.spec) - code_order(second.codes, codec.spec))
    narrow = codec.spec.bits <= 16
    return bool((steps <= (1 if narrow else 64)).all() and (not narrow or (steps > 0).mean() <= CODES_APART))


def _near(made: np.ndarray, observed: np.ndarray, bound: np.ndarray) -> bool:
    with np.errstate(invalid="ignore"):
        equal = (made == observed) | (np.isnan(made) & np.isnan(observed))
        return bool((equal | (np.abs(made.astype(np.float64) - observed) <= bound)).all())


_AGREE = {
    "pool": _pools_agree,
    "store_keys": _stores_agree,
    "encode_query": _queries_agree,
    "score": _scores_agree,
    "select": _selections_agree,
}

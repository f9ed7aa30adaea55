"""Guard bands around the memory that a candidate writes: what is not its own must stay as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.call import CandidateFault, call
from dsa_crosscheck.compare.repeatability.bits import bits_differ
from dsa_crosscheck.compare.repeatability.embedded import Embedded
from dsa_crosscheck.compare.repeatability.poison import Finding
from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.cache import read_records

GUARD_BYTE = 0xA5
GUARD_SCORE = np.uint32(0x7FA5A5A5)
"""Bits of guard cells among scores: a NaN that no computation gives."""
GUARD_CELLS = 1024
"""Score cells before and after the output."""
PITCHES = {"tight pitch": 0, "padded pitch": 64}
"""Extra cells between rows of the output."""


def check_guards(candidate: Any, setup: Setup, stored: np.ndarray | None, scores: np.ndarray | None) -> StageResult:
    """One line for ``store_keys`` and ``score_into``.

    ``stored``: the cache that ``store_keys`` filled before, ``scores``: what ``score`` returned; None
    leaves that method out. ``VIOLATION`` when a guard cell changed, when stored records depend on what
    the cache held, or when scores written with a row pitch are not those that ``score`` returned.
    """
    findings = []
    try:
        if stored is not None:
            findings.append(guard_store(candidate, setup, stored))
        if scores is not None:
            findings += [guard_scores(candidate, setup, scores, name, extra) for name, extra in PITCHES.items()]
    except CandidateFault as fault:
        return StageResult("guard", fault.verdict, 0, 0, note=str(fault))
    differing = sum(f.differing for f in findings)
    return StageResult(
        "guard",
        Verdict.VIOLATION if differing else Verdict.IDENTICAL,
        sum(f.elements for f in findings),
        differing,
        at=next((f.at for f in findings if f.at), ""),
        note="; ".join(f.note for f in findings if f.note),
    )


def guard_store(candidate: Any, setup: Setup, stored: np.ndarray) -> Finding:
    """Store into a cache between guard pages, all of it filled with one byte."""
    inputs = setup.inputs
    guard = np.full(stored.shape[1], GUARD_BYTE, np.uint8)
    embedded = Embedded.around(np.tile(guard, (stored.shape[0], 1)), guard, getattr(candidate, "device", "cpu"))
    arguments = (inputs.pooled, setup.norm_weight, inputs.rope_table, setup.positions, inputs.slots)
    (cache,) = call(candidate, "store_keys", *arguments, embedded.cache, writes=5)
    count, where = embedded.changed(guard)
    if count:
        return Finding(cache.size, count, where, f"store_keys wrote outside its cache: {where}")
    slots = inputs.slots[inputs.slots >= 0]
    other = read_records(cache, setup.layout, slots) != read_records(stored, setup.layout, slots)
    if not other.any():
        return Finding(cache.size, 0)
    page, offset = divmod(int(slots[int(np.argmax(other.any(axis=1)))]), setup.layout.page_size)
    note = "stored bytes depend on what the cache held before, or change from run to run"
    return Finding(cache.size, int(other.sum()), f"{page}:{offset}", note)


def guard_scores(candidate: Any, setup: Setup, scores: np.ndarray, name: str, extra: int) -> Finding:
    """``score_into`` a view whose rows lie ``extra`` cells apart, in a buffer full of guard cells."""
    batch = ScorerBatch.of(setup)
    rows, width = batch.lengths.size, int(batch.lengths.max(initial=0))
    pitch = width + extra
    filled = np.full(2 * GUARD_CELLS + rows * pitch, GUARD_SCORE).view(np.float32)
    buffer = torch.from_numpy(filled).to(getattr(candidate, "device", "cpu"))
    out = buffer[GUARD_CELLS : GUARD_CELLS + rows * pitch].view(rows, pitch)[:, :width]
    arguments = (batch.codes, batch.weights, batch.cache, batch.block_table, batch.request_of_row, batch.lengths)
    call(candidate, "score_into", *arguments, out, writes=6)
    after = buffer.cpu().numpy()
    body = after[GUARD_CELLS : GUARD_CELLS + rows * pitch].reshape(rows, pitch)
    changed = after.view(np.uint32) != GUARD_SCORE
    changed[GUARD_CELLS : GUARD_CELLS + rows * pitch].reshape(rows, pitch)[:, :width] = False
    wrong = bits_differ(body, scores, batch.lengths)
    found = []
    if wrong.any():
        found.append(_inside(wrong, body, name))
    if changed.any():
        found.append(_outside(changed, rows, width, pitch, name))
    at = found[0][0] if found else ""
    return Finding(filled.size, int(wrong.sum() + changed.sum()), at, "; ".join(note for _, note in found))


def _outside(changed: np.ndarray, rows: int, width: int, pitch: int, name: str) -> tuple[str, str]:
    """Place and sentence of the first changed guard cells."""
    cell = int(np.argmax(changed)) - GUARD_CELLS
    if cell < 0:
        return "before row 0", f"{int(changed[:GUARD_CELLS].sum())} cells before row 0 overwritten ({name})"
    if cell >= rows * pitch:
        total = int(changed[GUARD_CELLS + rows * pitch :].sum())
        return f"after row {rows - 1}", f"{total} cells after row {rows - 1} overwritten ({name})"
    row = cell // pitch
    columns = np.flatnonzero(changed[GUARD_CELLS + row * pitch : GUARD_CELLS + (row + 1) * pitch])
    return f"row {row}", f"row {row} wrote columns {columns[0]}-{columns[-1]} past its {width} ({name})"


def _inside(wrong: np.ndarray, body: np.ndarray, name: str) -> tuple[str, str]:
    """Place and sentence of the first row whose scores are not those that ``score`` returned."""
    row = int(np.argmax(wrong.any(axis=1)))
    columns = np.flatnonzero(wrong[row])
    span = f"row {row} columns {columns[0]}-{columns[-1]}"
    if (body[row, columns].view(np.uint32) == GUARD_SCORE).all():
        return f"row {row}", f"{span} not written ({name})"
    if columns[0] == 0 and row > 0:
        return f"row {row}", f"{span} overwritten after row {row - 1} ({name})"
    return f"row {row}", f"{span} differ from the scores that score returns ({name})"

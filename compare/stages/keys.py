"""Stage ``store_keys``: pooled keys to the bytes of the paged cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.codes import judge_codes, judge_scales, rescaled
from dsa_crosscheck.compare.verdict import Verdict, overall
from dsa_crosscheck.reference.cache import read_records, write_records
from dsa_crosscheck.reference.record import unpack_record


def run_keys(candidate: Any, setup: Setup) -> tuple[np.ndarray, ...]:
    """Store the pooled keys into a cache full of arbitrary bytes; (that cache before, and after)."""
    inputs = setup.inputs
    before = np.random.default_rng(0).integers(0, 256, (inputs.pages, setup.layout.page_bytes), np.uint8)
    (after,) = call(
        candidate,
        "store_keys",
        inputs.pooled,
        setup.norm_weight,
        inputs.rope_table,
        setup.positions,
        inputs.slots,
        before,
        writes=5,
    )
    expect("store_keys", "its cache", after, before.shape, (np.uint8,))
    return before, after


def judge_keys(outputs: tuple[np.ndarray, ...], setup: Setup) -> list[StageResult]:
    """Key scales (where the format has them), key codes, and every byte of the cache."""
    before, cache = outputs
    inputs, layout = setup.inputs, setup.layout
    stored = np.flatnonzero(inputs.slots >= 0)
    slots = inputs.slots[stored]
    records = read_records(cache, layout, slots)
    codec, head_dim = setup.conventions.key, inputs.geometry.head_dim
    got = unpack_record(records, codec, head_dim)
    want = unpack_record(setup.trace.records[stored], codec, head_dim)
    values, bound = setup.trace.keys.rotated[stored], setup.key_bound.rotated[stored]

    def key_at(row: int) -> str:
        key = int(stored[row])
        page, offset = divmod(int(slots[row]), layout.page_size)
        return f"req {inputs.key_request[key]} key {inputs.key_index[key]} ({page}:{offset})"

    def scale_at(at: tuple[int, ...]) -> str:
        return key_at(at[0]) + (f" g{at[1]}" if got.scales.shape[-1] > 1 else "")

    def code_at(at: tuple[int, ...]) -> str:
        return f"{key_at(at[0])} d{at[1]}"

    results = []
    if codec.scale_bytes:
        scales, constant = judge_scales("key scales", values, bound, got, want, codec, scale_at, inputs.geometry)
        results.append(scales)
        values, bound = rescaled(values, bound, constant)
    results.append(judge_codes("key codes", values, bound, got, want, codec, code_at))
    results.append(_judge_bytes(cache, before, records, setup, stored, overall(r.verdict for r in results)))
    unwritten = int((read_records(before, layout, slots) == records).all(axis=1).sum())
    if unwritten:
        results[-1] = replace(results[-1], verdict=Verdict.VIOLATION)
        # Said where it is read first: what those records seem to hold is what lay there before.
        first = next(place for place, result in enumerate(results) if result.verdict.failed)
        notes = (f"{unwritten} of {stored.size} keys were not written", results[first].note)
        results[first] = replace(results[first], note="; ".join(note for note in notes if note))
    return results


def _judge_bytes(
    cache: np.ndarray, before: np.ndarray, records: np.ndarray, setup: Setup, stored: np.ndarray, inside: Verdict
) -> StageResult:
    """Bytes of stored records as judged by their codes; every other byte must be as it was."""
    slots = setup.inputs.slots[stored]
    want = setup.trace.records[stored]
    expected = before.copy()
    write_records(expected, setup.layout, records, slots)
    strayed = cache != expected
    differing = int((records != want).sum()) + int(strayed.sum())
    note = at = ""
    if strayed.any():
        page, byte = (int(i) for i in np.argwhere(strayed)[0])
        at = f"page {page} byte {byte}"
        note = f"{int(strayed.sum())} bytes that belong to no stored key were written"
    # Records may differ where codes do not count as different: the two zeros.
    explained = Verdict.WITHIN_BOUND if inside.passed else inside
    verdict = Verdict.VIOLATION if note else explained if differing else Verdict.IDENTICAL
    wrong = strayed if strayed.any() else None
    return StageResult("cache bytes", verdict, cache.size, differing, at=at, note=note, wrong=wrong)

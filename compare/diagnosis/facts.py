"""Exact statements about wrong elements: zeros, NaN, one ratio, impossible signs."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.diagnosis.code_facts import code_facts
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.reference.cache import read_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised, code_values
from dsa_crosscheck.reference.record import unpack_record

SAME_RATIO = 1e-6
LEAST = 8


def exact_facts(result: StageResult, evidence: Evidence, setup: Setup) -> list[str]:
    """Sentences that hold for every wrong element of a line, or name the first of a kind."""
    if result.wrong is None or not result.wrong.any():
        return []
    arrays = _arrays(result.stage, evidence, setup)
    if arrays is None:
        return []
    got, want = arrays
    wrong = result.wrong
    facts = _of_values(result.stage, got[wrong], want[wrong])
    nan = np.isnan(got) & ~np.isnan(want) & wrong
    if nan.any():
        first = ", ".join(str(int(i)) for i in np.argwhere(nan)[0])
        facts.append(f"{result.stage}: {int(nan.sum()):,} NaN where the reference has numbers, first at ({first})")
    if result.stage in ("scores", "run: scores"):
        facts += _impossible_signs(result.stage, got, setup)
    return [*facts, *code_facts(result.stage, evidence, setup)]


def _of_values(line: str, got: np.ndarray, want: np.ndarray) -> list[str]:
    """Of the wrong elements alone."""
    if (got == 0).all() and (want != 0).all():
        return [f"{line}: every wrong element is exactly 0 and the reference's is not"]
    usable = np.isfinite(got) & np.isfinite(want) & (want != 0)
    if usable.sum() < max(LEAST, got.size // 2):
        return []
    ratio = got[usable] / want[usable]
    middle = float(np.median(ratio))
    if middle != 0 and (np.abs(ratio / middle - 1) < SAME_RATIO).all() and abs(middle - 1) > SAME_RATIO:
        return [f"{line}: every wrong element is {middle:.7g} times the reference's"]
    return []


def _impossible_signs(line: str, got: np.ndarray, setup: Setup) -> list[str]:
    """Under ReLU a row whose weights are all of one sign has no score of the other."""
    if not setup.conventions.relu:
        return []
    weights = setup.scorer_input[2]
    seen = np.isfinite(setup.shared_scores[0].values)
    below = seen & (got < 0) & np.all(weights >= 0, axis=1, keepdims=True)
    above = seen & (got > 0) & np.all(weights <= 0, axis=1, keepdims=True)
    facts = []
    for mask, side, sign in ((below, "below", "no negative"), (above, "above", "no positive")):
        if mask.any():
            row, key = (int(i) for i in np.argwhere(mask)[0])
            facts.append(
                f"{line}: {int(mask.sum()):,} are {side} zero in rows with {sign} weight, "
                f"which ReLU makes impossible; first at row {row} key {key}"
            )
    return facts


def _arrays(line: str, evidence: Evidence, setup: Setup) -> tuple[np.ndarray, np.ndarray] | None:
    """(got, wanted) of a line as numbers, float64 in the line's axes; None where it has none."""
    if line == "scores":
        return evidence.outputs["score"][0].astype(np.float64), setup.shared_scores[0].values
    if line == "head weights":
        return evidence.outputs["encode_query"][1].astype(np.float64), setup.trace.weights
    if line == "run: scores" and evidence.shown is not None:
        want = setup.unseen_scores[0].values
        return evidence.shown["scores"][:, : want.shape[1]].astype(np.float64), want
    if line == "pool" and setup.trace.pooled_stretch is not None:
        return evidence.outputs["pool"][0].astype(np.float64), setup.trace.pooled_stretch
    if line in ("key scales", "key codes"):
        stored = np.flatnonzero(setup.inputs.slots >= 0)
        records = read_records(evidence.outputs["store_keys"][1], setup.layout, setup.inputs.slots[stored])
        return _decoded(line, records, setup.trace.records[stored], setup.conventions.key, setup)
    if line in ("query scales", "query codes"):
        return _decoded(line, evidence.outputs["encode_query"][0], setup.trace.codes, setup.conventions.query, setup)
    return None


def _decoded(line: str, got: np.ndarray, want: np.ndarray, codec: Codec, setup: Setup) -> tuple[np.ndarray, np.ndarray]:
    both = [unpack_record(records, codec, setup.inputs.geometry.head_dim) for records in (got, want)]
    first, second = (_numbers(line, quantised, codec) for quantised in both)
    return first, second


def _numbers(line: str, quantised: Quantised, codec: Codec) -> np.ndarray:
    if line.endswith("scales"):
        return quantised.scales.astype(np.float64)
    return code_values(quantised.codes, codec.spec)

"""Judging stored codes and scales, of keys or queries."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.code_certificate import certify_codes, certify_scales
from dsa_crosscheck.compare.scale_only import ConstantRatio, constant_ratio
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.values import Place
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.quantise import Quantised

NO_COINCIDENCE = 10
"""Errors that lie on one side by chance once in 512 times."""


def judge_scales(
    stage: str,
    values: np.ndarray,
    bound: np.ndarray,
    got: Quantised,
    want: Quantised,
    codec: Codec,
    place: Place,
    geometry: Geometry,
) -> tuple[StageResult, ConstantRatio | None]:
    """Scales against the interval that the bound on their group's largest magnitude allows.

    Also the factor that explains all of them at once (``SCALE_ONLY``), if one does.
    """
    certificate = certify_scales(values, bound, got.scales, codec)
    differing = int((got.scales != want.scales).sum())
    if got.scales.size == 0 or not differing:
        return StageResult(stage, Verdict.IDENTICAL, got.scales.size, 0), None
    reference = want.scales.astype(np.float64)
    with np.errstate(invalid="ignore"):
        relative = np.nan_to_num(np.abs(got.scales / reference - 1.0), nan=np.inf)
    freedom = np.maximum(certificate.high - reference, reference - certificate.low) / reference
    wrong = ~certificate.explained
    rank = np.where(wrong, 1.0, 0.0) if wrong.any() else relative
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(rank)), rank.shape))
    note = ""
    if wrong.any():
        side = _one_side(got.scales[wrong] - reference[wrong])
        note = f"{int(wrong.sum())} of {wrong.size} not explained{side}"
        note += f"; here {got.scales[at]:.9g} for {reference[at]:.9g}"
    verdict = Verdict.VIOLATION if wrong.any() else Verdict.WITHIN_BOUND
    constant = None
    if wrong.any():
        constant = constant_ratio(got.scales, reference, freedom * reference, stage, geometry)
    if constant is not None:
        verdict, note = Verdict.SCALE_ONLY, constant.sentence
    result = StageResult(
        stage,
        verdict,
        wrong.size,
        differing,
        float(relative[at]),
        "rel",
        float(freedom[at]),
        None,
        place(at),
        note,
        wrong if wrong.any() else None,
    )
    return result, constant


def _one_side(deviation: np.ndarray) -> str:
    """Which side all wrong scales are on, if it is one: a largest magnitude that missed elements is too small."""
    if deviation.size < NO_COINCIDENCE:
        return ""
    return ", all too small" if (deviation < 0).all() else ", all too large" if (deviation > 0).all() else ""


def judge_codes(
    stage: str, values: np.ndarray, bound: np.ndarray, got: Quantised, want: Quantised, codec: Codec, place: Place
) -> StageResult:
    """Codes against the rounding boundaries that the float64 value lies near."""
    certificate = certify_codes(values, bound, got, want, codec)
    differing = int((certificate.steps > 0).sum())
    size = certificate.steps.size
    wrong = ~certificate.explained
    if not differing and not wrong.any():
        return StageResult(stage, Verdict.IDENTICAL, size, 0)
    # An unexplained code may equal the reference's: then it is wrong for the scale beside it.
    rank = np.where(wrong, 1.0 + certificate.steps, 0.0) if wrong.any() else certificate.factor
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(rank)), rank.shape))
    note = ""
    if wrong.any():
        note = f"{int(wrong.sum())} of {size} not explained; here code {got.codes[at]:#x} for {want.codes[at]:#x}"
    return StageResult(
        stage,
        Verdict.VIOLATION if wrong.any() else Verdict.WITHIN_BOUND,
        size,
        differing,
        float(certificate.steps[at]),
        "steps",
        None,
        float(certificate.factor.max()),
        place(at),
        note,
        wrong if wrong.any() else None,
    )


def rescaled(values: np.ndarray, bound: np.ndarray, constant: ConstantRatio | None) -> tuple[np.ndarray, np.ndarray]:
    """Values and bounds as codes beside scales off by ``constant`` must be judged: times that factor."""
    if constant is None:
        return values, bound
    factor = abs(constant.value)
    return values * factor, factor * (bound + np.abs(values) * constant.slack)

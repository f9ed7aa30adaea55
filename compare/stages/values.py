"""Judging float results elementwise against float64 and a bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsa_crosscheck.compare.scale_only import constant_ratio
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.geometry import Geometry

Place = Callable[[tuple[int, ...]], str]


def judge_values(
    stage: str,
    got: np.ndarray,
    want: np.ndarray,
    bound: np.ndarray,
    place: Place,
    seen: np.ndarray | None = None,
    *,
    geometry: Geometry | None = None,
) -> StageResult:
    """Judge ``got`` (float32) against float64 ``want`` with ``bound``, all of one shape.

    ``seen`` (bool) leaves elements out. An element differs when it is not the reference rounded to
    float32. NaN where the reference has a number is a violation; NaN on both sides agrees, as does an
    infinity where the reference, or what its bound allows, is past the largest float32. With a
    ``geometry``, a violation that one constant factor explains is ``SCALE_ONLY``.
    """
    mask = np.ones(got.shape, bool) if seen is None else seen
    same = (np.isnan(got) & np.isnan(want)) | _overflows(got, want, bound)
    with np.errstate(invalid="ignore", divide="ignore"):
        deviation = np.where(mask & ~same & (got != want), np.abs(got.astype(np.float64) - want), 0.0)
        deviation = np.where(np.isnan(deviation), np.inf, deviation)
        ratio = np.where(deviation > 0, deviation / bound, 0.0)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        differing = int((mask & ~same & (got != want.astype(np.float32))).sum())
    elements = int(mask.sum())
    if elements == 0:
        return StageResult(stage, Verdict.IDENTICAL, 0, 0, note="nothing to compare")
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    factor = float(ratio[at])
    verdict = Verdict.VIOLATION if factor > 1.0 else Verdict.WITHIN_BOUND if differing else Verdict.IDENTICAL
    note = ""
    wrong = ratio > 1.0 if factor > 1.0 else None
    if wrong is not None:
        note = f"{int(wrong.sum())} of {elements} past the bound; here {got[at]:.9g} for {want[at]:.9g}"
        constant = constant_ratio(got[mask], want[mask], bound[mask], stage, geometry) if geometry else None
        if constant is not None:
            verdict, note = Verdict.SCALE_ONLY, constant.sentence
    return StageResult(
        stage, verdict, elements, differing, float(deviation[at]), "", float(bound[at]), factor, place(at), note, wrong
    )


def _overflows(got: np.ndarray, want: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """bool: an infinity where an admissible value of that sign is past float32."""
    with np.errstate(invalid="ignore"):
        return np.isinf(got) & (np.sign(got) * want + bound > np.finfo(np.float32).max)

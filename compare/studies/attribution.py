"""Which part of storage costs how much: one part substituted at a time.

Codes are substituted into exact scores, query and key apart, under ideal (real-number) scales. Scales
have no effect on exact numbers, so theirs is what the whole format loses when ideal scales give way
to stored ones. Rounding of the scores and float32 sums act on exact operands. What the sum of these
shares leaves of the total is the interaction, and is stated, not spread.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.compare.studies.operands import Operands, exact, ideally_scaled, stored
from dsa_crosscheck.compare.studies.ranking import ExactRow, best_first
from dsa_crosscheck.compare.studies.scoring import as_dtype, float32_scores, scores_of
from dsa_crosscheck.reference.codec_spec import Codec

PARTS = ("query codes", "key codes", "scales", "score rounding", "accumulation")
COMPONENTS = (*PARTS, "interaction", "total")
SCORE_DTYPE = "bf16"
"""The score dtype whose rounding is attributed: the coarsest in use."""


def attribution(
    formats: tuple[str, ...],
    operands: Mapping[bool, Operands],
    rows: list[ExactRow],
    ks: tuple[int, ...],
    truth: np.ndarray,
    values: Mapping[tuple[str, bool], np.ndarray],
) -> xr.Dataset:
    """Shares of every lossy format, mean over rows.

    ``truth``: exact scores; ``values``: float64 scores of each format, with the transform or without.

    ``loss_share`` [format, hadamard, k, component]: of 1 - overlap, over the rows that see more than k
    keys. ``power_share`` [format, hadamard, component]: of the noise's power over the signal's. In both
    the parts and ``interaction`` add up to ``total``. ``exact`` is NaN.
    """
    loss = np.full((len(formats), len(operands), len(ks), len(COMPONENTS)), np.nan)
    power = np.full((len(formats), len(operands), len(COMPONENTS)), np.nan)
    rounding = _damage(rows, as_dtype(truth, SCORE_DTYPE), ks)
    for h, (on, one) in enumerate(operands.items()):
        common = {
            "score rounding": rounding,
            "accumulation": _damage(rows, float32_scores(one, exact, exact), ks),
        }
        ideal: dict[Codec, dict[str, np.ndarray]] = {}
        for f, name in enumerate(formats):
            if name == "exact":
                continue
            codec = FORMATS[name]
            grid = codec if codec.scale_bytes == 0 else codec.with_field("scale", _only_grid(codec))
            if grid not in ideal:
                ideal[grid] = _codes_alone(one, grid, rows, ks)
            damage = {**common, **ideal[grid]}
            encoding = stored(codec)
            damage["scales"] = _damage(rows, values[name, on], ks) - damage.pop("both codes")
            damage["total"] = _damage(rows, as_dtype(float32_scores(one, encoding, encoding), SCORE_DTYPE), ks)
            damage["interaction"] = damage["total"] - sum(damage[part] for part in PARTS)
            shares = np.stack([damage[component] for component in COMPONENTS], axis=-1)
            loss[f, h], power[f, h] = shares[:-1], shares[-1]
    return xr.Dataset(
        {
            "loss_share": (("format", "hadamard", "k", "component"), loss),
            "power_share": (("format", "hadamard", "component"), power),
        },
        {"component": list(COMPONENTS)},
    )


def _only_grid(codec: Codec) -> str:
    """One name for codecs that differ in their scales alone, whose codes under ideal scales are equal."""
    return "power-of-two" if codec.spec.bits == 4 else "fp32"


def _codes_alone(one: Operands, codec: Codec, rows: list[ExactRow], ks: tuple[int, ...]) -> dict[str, np.ndarray]:
    codes = ideally_scaled(codec)
    return {
        "query codes": _damage(rows, scores_of(one, codes, exact), ks),
        "key codes": _damage(rows, scores_of(one, exact, codes), ks),
        "both codes": _damage(rows, scores_of(one, codes, codes), ks),
    }


def _damage(rows: list[ExactRow], scores: np.ndarray, ks: tuple[int, ...]) -> np.ndarray:
    """[len(ks) + 1]: mean 1 - overlap at each k (NaN where no row sees more keys), then noise over signal power."""
    lost: list[list[float]] = [[] for _ in ks]
    noise = signal = 0.0
    for row, got in zip(rows, scores, strict=True):
        got = got[: row.scores.size]
        noise += float(((got - row.scores) ** 2).sum())
        signal += float((row.scores**2).sum())
        useful = [i for i, k in enumerate(ks) if k < row.scores.size]
        if useful:
            best = best_first(got, ks[useful[-1]])
            for i in useful:
                lost[i].append(1.0 - row.swaps(best[: ks[i]]).overlap)
    return np.array([*(np.mean(v) if v else np.nan for v in lost), noise / signal if signal else np.nan])

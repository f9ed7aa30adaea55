"""One cell of the precision study: one family, context and seed, with every format that is asked for.

Exact scores are computed once, each format's once a side of the transform; score dtypes and k are
derived from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.studies.attribution import attribution
from dsa_crosscheck.compare.studies.families import family_of
from dsa_crosscheck.compare.studies.formats import FORMATS, with_hadamard
from dsa_crosscheck.compare.studies.operands import Operands, exact, stored
from dsa_crosscheck.compare.studies.prediction import predicted_overlap
from dsa_crosscheck.compare.studies.ranking import ExactRow, best_first
from dsa_crosscheck.compare.studies.scoring import as_dtype, scores_of

BY_K = ("overlap", "swap_depth_mean", "swap_depth_max", "mass_lost", "predicted", "predicted_near")
TIE_RULES = ("fp4-even", "fp4-toward-zero")
"""Two formats that differ in their tie rule alone; their selections are compared with each other as well."""


@dataclass(frozen=True)
class PrecisionCell:
    """What one cell measures. ``ks`` ascend; ``attributed``: with the shares of the loss."""

    family: str
    context: int
    seed: int
    rows: int
    formats: tuple[str, ...]
    hadamard: tuple[bool, ...]
    score_dtypes: tuple[str, ...]
    ks: tuple[int, ...]
    attributed: bool


def measure(cell: PrecisionCell) -> xr.Dataset:
    """All variables of ``cell``, with the dimensions family, context and seed of length one.

    A row that sees no more than k keys has nothing to lose and holds NaN there; rows that a family
    does not have are NaN everywhere.
    """
    inputs = family_of(cell.family).build(cell.context, cell.rows, cell.seed)
    operands = {on: Operands(inputs, with_hadamard(on)) for on in cell.hadamard}
    first = operands[cell.hadamard[0]]
    truth = scores_of(first, exact, exact)
    rows = [ExactRow(truth[row, :length]) for row, length in enumerate(first.lengths)]
    shape = tuple(len(axis) for axis in (cell.formats, cell.hadamard, cell.score_dtypes))
    by_k = {name: np.full((*shape, len(cell.ks), cell.rows), np.nan) for name in BY_K}
    snr = np.full((*shape, cell.rows), np.nan)
    ties = np.full((len(cell.hadamard), len(cell.ks), cell.rows), np.nan)
    kept: dict[tuple[str, bool], np.ndarray] = {}
    for h, on in enumerate(cell.hadamard):
        for f, name in enumerate(cell.formats):
            encoding = stored(FORMATS[name])
            values = truth if name == "exact" else scores_of(operands[on], encoding, encoding)
            if cell.attributed or name in TIE_RULES:
                kept[name, on] = values
            for d, dtype in enumerate(cell.score_dtypes):
                _fill(rows, as_dtype(values, dtype), cell.ks, {n: a[f, h, d] for n, a in by_k.items()}, snr[f, h, d])
        if set(TIE_RULES) <= set(cell.formats):
            even, toward_zero = (kept[name, on] for name in TIE_RULES)
            ties[h] = _agreement(even, toward_zero, rows, cell.ks, cell.rows)
    dims = ("format", "hadamard", "score_dtype")
    dataset = xr.Dataset(
        {
            **{name: ((*dims, "k", "row"), values) for name, values in by_k.items()},
            "snr": ((*dims, "row"), snr),
            "tie_overlap": (("hadamard", "k", "row"), ties),
        },
        {
            "format": list(cell.formats),
            "hadamard": ["on" if on else "off" for on in cell.hadamard],
            "score_dtype": list(cell.score_dtypes),
            "k": list(cell.ks),
            "row": np.arange(cell.rows),
        },
    )
    if cell.attributed:
        dataset = dataset.merge(attribution(cell.formats, operands, rows, cell.ks, truth, kept))
    return dataset.expand_dims(family=[cell.family], context=[cell.context], seed=[cell.seed])


def _fill(
    rows: list[ExactRow], scores: np.ndarray, ks: tuple[int, ...], out: dict[str, np.ndarray], snr: np.ndarray
) -> None:
    """Measure one array of scores into ``out[...][k, row]`` and ``snr[row]``."""
    for r, row in enumerate(rows):
        got = scores[r, : row.scores.size]
        error = got - row.scores
        snr[r] = signal_to_noise(row.scores, error)
        useful = [i for i, k in enumerate(ks) if k < row.scores.size]
        if not useful:
            continue
        best = best_first(got, ks[useful[-1]])
        for i in useful:
            swaps = row.swaps(best[: ks[i]])
            out["overlap"][i, r] = swaps.overlap
            out["swap_depth_mean"][i, r] = swaps.depth_mean
            out["swap_depth_max"][i, r] = swaps.depth_max
            out["mass_lost"][i, r] = swaps.mass_lost
            out["predicted"][i, r] = predicted_overlap(row, error, ks[i], near=False)
            out["predicted_near"][i, r] = predicted_overlap(row, error, ks[i], near=True)


def _agreement(
    first: np.ndarray, second: np.ndarray, rows: list[ExactRow], ks: tuple[int, ...], width: int
) -> np.ndarray:
    """Shared keys of two score arrays' selections over k, [k, width]; NaN where a row sees no more than k."""
    out = np.full((len(ks), width), np.nan)
    for r, row in enumerate(rows):
        n = row.scores.size
        useful = [i for i, k in enumerate(ks) if k < n]
        if useful:
            largest = ks[useful[-1]]
            one, other = best_first(first[r, :n], largest), best_first(second[r, :n], largest)
            for i in useful:
                out[i, r] = np.intersect1d(one[: ks[i]], other[: ks[i]]).size / ks[i]
    return out


def signal_to_noise(signal: np.ndarray, error: np.ndarray) -> float:
    """Power of ``signal`` over that of ``error`` in dB: inf without error, NaN without signal or keys."""
    power, noise = float((signal**2).sum()), float((error**2).sum())
    if power == 0:
        return float("nan")
    return float("inf") if noise == 0 else 10.0 * float(np.log10(power / noise))

"""One cell of the needle study: one family, context and seed, all formats, depths and strengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.studies.families import family_of
from dsa_crosscheck.compare.studies.formats import FORMATS, with_hadamard
from dsa_crosscheck.compare.studies.haystack import Haystack
from dsa_crosscheck.compare.studies.operands import Operands, exact, stored
from dsa_crosscheck.compare.studies.planting import Needles, plant, plant_at_score
from dsa_crosscheck.compare.studies.prediction import near_boundary
from dsa_crosscheck.compare.studies.ranking import ExactRow
from dsa_crosscheck.compare.studies.scoring import scores_of

PROBES = 24
"""Needles a row, format and k that are aimed at margins around the boundary."""
PROBE_MARGINS = (-1.0, 4.0)
"""Their range, in units of the format's noise."""
AIM = 0.1
"""How near a needle has to come to the margin it was aimed at, in the same units, to be counted."""


@dataclass(frozen=True)
class NeedleCell:
    """What one cell measures; ``depths`` and ``strengths`` in [0, 1]."""

    family: str
    context: int
    seed: int
    rows: int
    formats: tuple[str, ...]
    ks: tuple[int, ...]
    depths: tuple[float, ...]
    strengths: tuple[float, ...]
    hadamard: bool


@dataclass(frozen=True)
class NeedleField:
    """The haystack scores of one cell, exact and in every format, and its operands."""

    cell: NeedleCell
    operands: Operands
    scores: dict[str, np.ndarray]

    def haystack(self, name: str, row: int) -> Haystack:
        """Row ``row`` in format ``name``."""
        return Haystack(self.scores[name][row, : self.operands.lengths[row]])

    def noise(self, name: str, row: int, k: int) -> float:
        """Standard deviation of the format's error on the keys around rank k; NaN where all are selected."""
        truth = self.haystack("exact", row).scores
        if truth.size <= k:
            return float("nan")
        near = near_boundary(ExactRow(truth), k)
        return float(np.std((self.haystack(name, row).scores - truth)[near]))


def field_of(cell: NeedleCell) -> NeedleField:
    """Build the haystack of ``cell`` and score it in every format, and exactly."""
    inputs = family_of(cell.family).build(cell.context, cell.rows, cell.seed)
    operands = Operands(inputs, with_hadamard(cell.hadamard))
    scores = {}
    for name in dict.fromkeys(("exact", *cell.formats)):
        encoding = stored(FORMATS[name])
        scores[name] = scores_of(operands, encoding, encoding)
    return NeedleField(cell, operands, scores)


def measure(cell: NeedleCell) -> xr.Dataset:
    """Plant, score and select every needle of ``cell``; family, context and seed are dimensions of length one.

    - ``found`` [format, k, depth, strength]: needles selected, of the ``tried`` rows.
    - ``found_exactly`` [k]: needles of all depths and strengths that exact scores select; ``lost`` [format, k]:
      those of them that the format does not.
    - ``margin`` [format, k, strength]: exact score less the k-th of the others, over the format's noise
      there; median over rows and depths. NaN for a format without error, inf where all keys are selected.
    - ``noise`` [format, k]: that noise over the standard deviation of the row's exact scores, mean of rows.
    - ``probe_margin``, ``probe_found`` [format, k, probe]: needles aimed at the boundary, NaN where none could be.
    """
    field = field_of(cell)
    rows = field.operands.lengths.size
    depths, strengths = (
        np.broadcast_to(grid.reshape(-1), (rows, grid.size))
        for grid in np.meshgrid(cell.depths, cell.strengths, indexing="ij")
    )
    needles = plant(field.operands, depths, strengths)
    spread = np.array([np.std(field.haystack("exact", row).scores) for row in range(rows)])
    sigma = np.array([[[field.noise(name, row, k) for row in range(rows)] for k in cell.ks] for name in cell.formats])
    shape = (len(cell.formats), len(cell.ks), rows, len(cell.depths), len(cell.strengths))
    found = np.array([selected(field, needles, name) for name in cell.formats]).reshape(shape)
    truth = selected(field, needles, "exact")
    lost = (truth & ~found.reshape(*shape[:2], *truth.shape[1:])).sum(axis=(2, 3))
    margin = np.array([margins(field, needles, one) for one in sigma]).reshape(shape)
    probe_margin, probe_found = _probe(field, sigma)
    by_k = ("format", "k")
    dataset = xr.Dataset(
        {
            "found": ((*by_k, "depth", "strength"), found.sum(axis=2).astype(np.float64)),
            "tried": ((), float(rows)),
            "found_exactly": (("k",), truth.sum(axis=(1, 2)).astype(np.float64)),
            "lost": (by_k, lost.astype(np.float64)),
            "margin": ((*by_k, "strength"), np.median(margin, axis=(2, 3))),
            "noise": (by_k, (sigma / spread).mean(axis=2)),
            "probe_margin": ((*by_k, "probe"), probe_margin.reshape(*shape[:2], -1)),
            "probe_found": ((*by_k, "probe"), probe_found.reshape(*shape[:2], -1).astype(np.float64)),
        },
        {
            "format": list(cell.formats),
            "k": list(cell.ks),
            "depth": list(cell.depths),
            "strength": list(cell.strengths),
            "probe": np.arange(rows * PROBES),
        },
    )
    return dataset.expand_dims(family=[cell.family], context=[cell.context], seed=[cell.seed])


def selected(field: NeedleField, needles: Needles, name: str) -> np.ndarray:
    """Whether format ``name`` selects each needle at each k, bool [k, rows, needles]."""
    scores = needles.scores(stored(FORMATS[name]))
    above = np.stack(
        [field.haystack(name, row).rivals_above(scores[row], places) for row, places in enumerate(needles.places)]
    )
    return np.stack([above < k for k in field.cell.ks])


def margins(field: NeedleField, needles: Needles, sigma: np.ndarray) -> np.ndarray:
    """Exact margins over ``sigma`` [k, rows], float64 [k, rows, needles]; NaN and inf as in ``measure``."""
    truth = needles.scores(exact)
    out = np.empty((len(field.cell.ks), *truth.shape))
    for j, k in enumerate(field.cell.ks):
        for row, places in enumerate(needles.places):
            above = truth[row] - field.haystack("exact", row).kth_of_others(places, k)
            scale = sigma[j, row] if sigma[j, row] > 0 else np.nan
            out[j, row] = np.where(np.isinf(above), np.inf, above / scale)
    return out


def _probe(field: NeedleField, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Needles aimed at margins around each boundary: margins reached and whether found, [format, k, rows, PROBES].

    All formats and k are planted in one go. Without a boundary (all keys selected) or noise there is
    nothing to aim at, and a needle that no strength brings to its margin is left out.
    """
    cell, rows = field.cell, sigma.shape[2]
    shape = (len(cell.formats), len(cell.ks), rows, PROBES)
    aim = np.broadcast_to(np.linspace(*PROBE_MARGINS, PROBES), shape)
    kth = np.array(
        [[field.haystack("exact", row).kth_of_others(np.zeros(1, int), k)[0] for row in range(rows)] for k in cell.ks]
    )
    aimed = np.isfinite(kth) & (sigma > 0)
    wanted = np.where(aimed[..., None], np.where(aimed, kth, 0.0)[..., None] + sigma[..., None] * aim, 0.0)
    by_row = np.moveaxis(wanted, 2, 0).reshape(rows, -1)
    depths = np.broadcast_to(np.resize(cell.depths, by_row.shape[1]), by_row.shape)
    needles = plant_at_score(field.operands, depths, by_row, exact)
    got, found = np.full(shape, np.nan), np.zeros(shape, bool)
    for f, name in enumerate(cell.formats):
        for j in range(len(cell.ks)):
            start = (f * len(cell.ks) + j) * PROBES
            some = needles.columns(start, start + PROBES)
            reached = margins(field, some, sigma[f])[j]
            hit = np.abs(reached - aim[f, j]) < AIM
            got[f, j] = np.where(aimed[f, j][:, None] & hit, reached, np.nan)
            found[f, j] = selected(field, some, name)[j] & np.isfinite(got[f, j])
    return got, found

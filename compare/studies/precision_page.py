"""The precision study as a page."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dsa_crosscheck.compare.environment import PACKAGES
from dsa_crosscheck.compare.reports.difference import Measure
from dsa_crosscheck.compare.reports.page import Page, Table
from dsa_crosscheck.compare.studies.attribution import COMPONENTS, SCORE_DTYPE
from dsa_crosscheck.compare.studies.precision_figures import figures
from dsa_crosscheck.compare.studies.precision_summary import REPLICATES, summarise
from dsa_crosscheck.compare.studies.precision_text import Focus, answer, focus_of, hadamard_gain, lossy, place_of
from dsa_crosscheck.compare.studies.statistics import LEVEL, RESAMPLES

__all__ = ["MEASURES", "REPLICATES", "page", "summarise"]

MEASURES = (
    Measure("overlap_mean", "overlap_low", "overlap_high"),
    Measure("overlap_p1", "overlap_p1_low", "overlap_p1_high"),
)


def page(dataset: xr.Dataset) -> Page:
    """The whole study; ``ValueError`` when nothing was measured."""
    at = focus_of(dataset)
    tables = (_overlap(dataset, at), _score_dtypes(dataset, at), _hadamard(dataset, at), _shares(dataset, at))
    return Page(
        title="What storage formats of index keys and queries cost",
        question="How many of the keys that exact arithmetic selects are still selected, where are keys lost, and why?",
        answer=answer(dataset),
        figures=figures(dataset, at),
        tables=tuple(table for table in tables if table.rows),
        method=_method(dataset),
        environment=_environment(dataset),
        command=str(dataset.attrs["command"]),
    )


def _overlap(dataset: xr.Dataset, at: Focus) -> Table:
    rows = []
    for family in dataset.family.values:
        for context in dataset.context.values:
            for k in dataset.k.values:
                for kind in lossy(dataset):
                    one = dataset.sel(family=family, context=context, k=k, format=kind).isel(score_dtype=0, hadamard=0)
                    if np.isfinite(float(one.overlap_mean)):
                        rows.append(
                            (
                                str(family),
                                f"{int(context):,}",
                                f"{int(k):,}",
                                kind,
                                f"{float(one.overlap_mean):.4f}",
                                f"{float(one.overlap_low):.4f} - {float(one.overlap_high):.4f}",
                                f"{float(one.overlap_p1):.4f}",
                                f"{float(one.overlap_worst):.4f}",
                                f"{float(one.predicted_average):.4f}",
                                f"{float(one.snr_average):.1f}",
                                f"{float(one.swap_depth_mean_average):.0f}",
                                f"{float(one.swap_depth_max_average):.0f}",
                                f"{float(one.mass_lost_average):.2e}",
                            )
                        )
    columns = (
        "family", "context", "k", "format", "overlap", "95 % interval", "p1", "worst row", "predicted", "SNR dB",
        "depth", "deepest", "mass lost",
    )  # fmt: skip
    return Table(
        f"Overlap with the exact selection, Hadamard {dataset.hadamard.values[0]}, scores "
        f"{dataset.score_dtype.values[0]}. Depth: mean rank distance of swapped keys from the k-th; deepest: the "
        "largest of a row, mean over rows.",
        columns,
        tuple(rows),
        labels=4,
    )


def _score_dtypes(dataset: xr.Dataset, at: Focus) -> Table:
    rows = []
    for family in dataset.family.values:
        place = place_of(dataset, str(family), at)
        if place is None or "exact" not in dataset.format.values:
            continue
        for dtype in dataset.score_dtype.values:
            one = dataset.sel(family=family, context=place.context, k=place.k, format="exact", score_dtype=dtype).isel(
                hadamard=0
            )
            rows.append(
                (
                    str(family),
                    f"{place.context:,}",
                    f"{place.k:,}",
                    str(dtype),
                    f"{float(one.overlap_mean):.5f}",
                    f"{float(one.overlap_low):.5f} - {float(one.overlap_high):.5f}",
                    f"{float(one.overlap_worst):.5f}",
                )
            )
    columns = ("family", "context", "k", "score dtype", "overlap", "95 % interval", "worst row")
    return Table("What the dtype of stored scores costs alone, keys and queries exact.", columns, tuple(rows), labels=4)


def _hadamard(dataset: xr.Dataset, at: Focus) -> Table:
    rows = []
    for family in dataset.family.values:
        place = place_of(dataset, str(family), at)
        for kind in lossy(dataset) if place is not None else ():
            assert place is not None
            gain = hadamard_gain(dataset, str(family), place.context, place.k, kind)
            if gain is None:
                continue
            cell = dataset.sel(family=family, context=place.context, k=place.k, format=kind).isel(score_dtype=0)
            verdict = "helps" if gain[1] > 0 else "harms" if gain[2] < 0 else "no difference shown"
            rows.append(
                (
                    str(family),
                    kind,
                    verdict,
                    f"{float(cell.overlap_mean.sel(hadamard='off')):.4f}",
                    f"{float(cell.overlap_mean.sel(hadamard='on')):.4f}",
                    f"{gain[0]:+.4f}",
                    f"{gain[1]:+.4f} to {gain[2]:+.4f}",
                )
            )
    columns = ("family", "format", "the transform", "overlap without", "with", "difference", "95 % interval")
    return Table("The Hadamard transform, by family and format, on the same rows.", columns, tuple(rows), labels=3)


def _shares(dataset: xr.Dataset, at: Focus) -> Table:
    rows = []
    for family in dataset.family.values:
        for context in dataset.context.values:
            for kind in lossy(dataset):
                one = dataset.sel(family=family, context=context, format=kind).isel(hadamard=0)
                power = one.power_share.mean("seed").values
                if not np.isfinite(power).all():
                    continue
                where = (str(family), f"{int(context):,}", kind)
                rows.append(
                    (*where, "noise power", *(f"{value / power[-1]:.1%}" for value in power[:-1]), f"{power[-1]:.2e}")
                )
                for k in dataset.k.values:
                    loss = one.loss_share.sel(k=k).mean("seed").values
                    if np.isfinite(loss).all():
                        rows.append((*where, f"loss at k {int(k):,}", *(f"{value:.4f}" for value in loss)))
    return Table(
        f"The loss by part, one substituted at a time, scores in {SCORE_DTYPE}, Hadamard "
        f"{dataset.hadamard.values[0]}: noise power as shares of the total, and 1 - overlap. In both, parts and "
        "interaction add up to the total.",
        ("family", "context", "format", "of", *COMPONENTS),
        tuple(rows),
        labels=4,
    )


def _method(dataset: xr.Dataset) -> tuple[str, ...]:
    return (
        "Measured, not modelled: inputs pass through the float64 reference (norm, RoPE, Hadamard), then keys and "
        "queries through each format's quantiser, and all scores are float64 sums; nothing here is a kernel's error. "
        "Simulated: the inputs, except captured text and case files.",
        "All query rows of a generated family stand at the last token. Vectors are bfloat16 when they reach a "
        "quantiser, as in DeepSeek's inference code.",
        f"Overlap counts a selected key when its exact score reaches the exact k-th. Intervals are {LEVEL:.0%}: "
        f"Student's t over {dataset.attrs['seeds']} seed means of {dataset.attrs['rows']} rows, or for families "
        "without random numbers a "
        f"bootstrap of {RESAMPLES} resamples over rows. The worst row has no interval.",
        "Predicted overlap: 1 - f sigma / (sqrt(2 pi) k), with f the keys a unit of score around the k-th and sigma "
        "the standard deviation of the score error. It is a model, and shown beside the measurement to be judged.",
        "Attention mass lost is the share of the exact selection's softmax mass that is missed with exact scores as "
        "logits. Trained models select with these scores and attend with others, so it is an indication only.",
        "Parts of the loss: codes are measured with ideal real-number scales, query and key apart; scales as what the "
        "whole format loses when ideal scales give way to stored ones; score rounding and float32 sums on exact "
        "operands. The interaction is what their sum leaves of the total.",
    )


def _environment(dataset: xr.Dataset) -> tuple[tuple[str, str], ...]:
    names = ("python", "platform", "machine", "cpus", *PACKAGES)
    return tuple((name, str(dataset.attrs[name])) for name in names if name in dataset.attrs)

"""The precision study in words: its main point, a console table, and the sentences of the answer."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from io import StringIO

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

from dsa_crosscheck.compare.studies.statistics import student_interval

WIDTH = 100


@dataclass(frozen=True)
class Focus:
    """The cell that sentences and figures are about: the first family, at a context and k that it was measured at."""

    family: str
    context: int
    k: int


def focus_of(dataset: xr.Dataset) -> Focus:
    """The first family's context with attributed shares (else its middle one), and the largest k that can lose keys.

    ``ValueError`` when no cell was measured: every row saw at most k keys.
    """
    for family in dataset.family.values:
        one = dataset.overlap_mean.sel(family=family)
        contexts = [c for c in dataset.context.values if one.sel(context=c).notnull().any()]
        if contexts:
            shares = dataset.power_share.sel(family=family)
            attributed = [c for c in contexts if shares.sel(context=c).notnull().any()]
            context = attributed[-1] if attributed else contexts[len(contexts) // 2]
            ks = [k for k in dataset.k.values if one.sel(context=context, k=k).notnull().any()]
            return Focus(str(family), int(context), int(ks[-1]))
    raise ValueError("the dataset should have rows that see more than k keys, got none that do")


def lossy(dataset: xr.Dataset) -> list[str]:
    """Formats other than ``exact``."""
    return [str(name) for name in dataset.format.values if name != "exact"]


def interval(dataset: xr.Dataset) -> str:
    """``0.9775 [0.9763, 0.9787]`` of one cell."""
    mean, low, high = (float(dataset[name]) for name in ("overlap_mean", "overlap_low", "overlap_high"))
    return f"{mean:.4f} [{low:.4f}, {high:.4f}]"


def place_of(dataset: xr.Dataset, family: str, at: Focus) -> Focus | None:
    """Where ``family`` is shown: at the context and k of ``at``, or its nearest smaller measured ones.

    None when no row of the family sees more keys than any k.
    """
    measured = dataset.overlap_mean.sel(family=family).notnull()
    measured = measured.any([dim for dim in measured.dims if dim not in ("context", "k")])
    places = [
        (int(context), int(k))
        for context in dataset.context.values
        for k in dataset.k.values
        if bool(measured.sel(context=context, k=k))
    ]
    if not places:
        return None
    context = max((c for c, _ in places if c <= at.context), default=places[0][0])
    return Focus(family, context, max(k for c, k in places if c == context))


def hadamard_gain(
    dataset: xr.Dataset, family: str, context: int, k: int, kind: str
) -> tuple[float, float, float] | None:
    """Overlap with the transform less that without, and its 95 % interval over the same rows.

    Student's t over differences of seed means, or over rows where there is one seed. None unmeasured.
    """
    one = dataset.overlap.sel(family=family, context=context, k=k, format=kind, score_dtype=dataset.score_dtype[0])
    if set(dataset.hadamard.values) != {"on", "off"}:
        return None
    paired = (one.sel(hadamard="on") - one.sel(hadamard="off")).transpose("seed", "row").values
    by_seed = [row[np.isfinite(row)] for row in paired]
    samples = [row.mean() for row in by_seed if row.size]
    if not samples:
        return None
    sample = np.array(samples) if len(samples) > 1 else np.concatenate(by_seed)
    low, high = student_interval(sample)
    return float(sample.mean()), float(low), float(high)


def answer(dataset: xr.Dataset) -> tuple[str, ...]:
    """Three sentences: how much each format loses, where the loss is largest, and why."""
    at = focus_of(dataset)
    return _how_much(dataset, at), _where(dataset, at), _why(dataset, at)


def _how_much(dataset: xr.Dataset, at: Focus) -> str:
    one = dataset.sel(family=at.family, context=at.context, k=at.k).isel(score_dtype=0, hadamard=0)
    shares = ", ".join(f"{kind} {float(one.overlap_mean.sel(format=kind)):.2%}" for kind in lossy(dataset))
    return (
        f"Of the {at.k:,} keys that exact arithmetic selects from {at.context:,} {at.family} tokens, this share is "
        f"still selected: {shares}."
    )


def _where(dataset: xr.Dataset, at: Focus) -> str:
    one = dataset.overlap_mean.isel(score_dtype=0).sel(format=lossy(dataset))
    values = np.where(np.isfinite(one.values), one.values, np.inf)
    worst = one[dict(zip(one.dims, np.unravel_index(values.argmin(), values.shape), strict=True))]
    family, context, kind, hadamard, k = (worst[dim].item() for dim in ("family", "context", "format", "hadamard", "k"))
    text = (
        f"The largest loss measured is {kind} on {family} at {context:,} tokens, k {k:,}, Hadamard {hadamard}: "
        f"{float(worst):.2%} kept"
    )
    kinds = [kind for kind in lossy(dataset) if kind.startswith("fp4")] or lossy(dataset)[-1:]
    gains = []
    for name in dataset.family.values:
        gain = hadamard_gain(dataset, str(name), at.context, at.k, kinds[0])
        if gain is not None and (gain[1] > 0 or gain[2] < 0):
            gains.append((gain[0], str(name)))
    if not gains:
        return f"{text}; at {at.context:,} tokens no family shows a difference by the Hadamard transform ({kinds[0]})."
    helped = [f"{name} by {100 * gain:+.1f} points" for gain, name in sorted(gains, reverse=True)]
    return f"{text}; the Hadamard transform moves {kinds[0]} at {at.context:,} tokens on {', '.join(helped)}."


def _why(dataset: xr.Dataset, at: Focus) -> str:
    shares = dataset.power_share.sel(family=at.family, context=at.context).isel(hadamard=0).mean("seed")
    parts = []
    for kind in ("fp8-fp32-scale", "fp4-even"):
        if kind in lossy(dataset) and shares.sel(format=kind).notnull().all():
            one = shares.sel(format=kind) / shares.sel(format=kind, component="total")
            codes = float(one.sel(component=["query codes", "key codes"]).sum())
            parts.append(
                f"of {kind}'s noise power {_percent(codes)} is query and key codes, "
                f"{_percent(float(one.sel(component='scales')))} its scales and "
                f"{_percent(float(one.sel(component='score rounding')))} bf16 scores"
            )
    error = prediction_error(dataset)
    named = {name: value for name, value in error.items() if np.isfinite(value)}
    best, worst = min(named, key=lambda n: named[n]), max(named, key=lambda n: named[n])
    parts.append(
        f"score density at the k-th key and noise alone predict the overlap within {named[best]:.4f} on {best} "
        f"(root mean square) and within {named[worst]:.4f} on {worst}"
    )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _percent(share: float) -> str:
    """Whole percent, tenths below one; no minus sign before a zero."""
    return f"{share:.0%}" if abs(share) >= 0.01 else f"{round(share, 3) + 0.0:.1%}"


def prediction_error(dataset: xr.Dataset) -> dict[str, float]:
    """Root mean square of predicted less measured mean overlap over all lossy cells of each family; NaN without."""
    out = {}
    for family in dataset.family.values:
        one = dataset.sel(family=family, format=lossy(dataset)).isel(score_dtype=0)
        difference = (one.predicted_average - one.overlap_mean).values
        difference = difference[np.isfinite(difference)]
        out[str(family)] = float(np.sqrt((difference**2).mean())) if difference.size else float("nan")
    return out


def render(dataset: xr.Dataset) -> str:
    """Overlap of every family and format at one context and k each, and the answer, in at most 100 columns."""
    at = focus_of(dataset)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ("family", "context", "k", "format", "Hadamard on", "p1", "worst", "off", "predicted", "SNR")
    for name in columns:
        table.add_column(name, justify="left" if name in ("family", "format") else "right", no_wrap=True)
    for family in dataset.family.values:
        place = place_of(dataset, str(family), at)
        if place is not None:
            for kind in lossy(dataset):
                one = dataset.sel(family=family, context=place.context, format=kind, k=place.k).isel(score_dtype=0)
                table.add_row(str(family), f"{place.context:,}", f"{place.k:,}", kind, *_cells(one))
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    unmeasured = [str(f) for f in dataset.family.values if place_of(dataset, str(f), at) is None]
    return "\n".join(
        [
            f"dsa-crosscheck study precision     scores {dataset.score_dtype.values[0]}"
            f"   seeds {dataset.attrs['seeds']}   rows {dataset.attrs['rows']}",
            "",
            *(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")),
            "",
            "share of the exact selection that is kept; ± half of the 95 % interval over seeds (one seed: rows)",
            *([f"no row sees more than k keys: {', '.join(unmeasured)}"] if unmeasured else []),
            "",
            *_wrapped(answer(dataset)),
        ]
    )


def _cells(one: xr.Dataset) -> list[str]:
    on = one.sel(hadamard="on") if "on" in one.hadamard.values else one.isel(hadamard=0)
    half = (float(on.overlap_high) - float(on.overlap_low)) / 2
    off = f"{float(one.overlap_mean.sel(hadamard='off')):.4f}" if "off" in one.hadamard.values else "-"
    return [
        f"{float(on.overlap_mean):.4f} ±{half:.4f}",
        f"{float(on.overlap_p1):.4f}",
        f"{float(on.overlap_worst):.4f}",
        off,
        f"{float(on.predicted_average):.4f}",
        f"{float(on.snr_average):.1f}",
    ]


def _wrapped(sentences: tuple[str, ...]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH)]

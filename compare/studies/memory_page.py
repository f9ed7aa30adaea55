"""The memory study as a page."""

from __future__ import annotations

from typing import Any

import xarray as xr

from dsa_crosscheck.compare.environment import PACKAGES
from dsa_crosscheck.compare.reports.difference import Measure
from dsa_crosscheck.compare.reports.figures import INK, MARKERS, SERIES, svg_of
from dsa_crosscheck.compare.reports.page import Figure, Page, Table
from dsa_crosscheck.compare.studies.memory_text import size

REPLICATES: tuple[str, ...] = ()
MEASURES = (Measure("peak"), Measure("largest"), Measure("cache"))
GIB = 1 << 30


def summarise(dataset: xr.Dataset) -> xr.Dataset:
    """Nothing is repeated, so there is nothing to summarise."""
    return dataset


def page(dataset: xr.Dataset) -> Page:
    """The whole study."""
    a = dataset.attrs
    return Page(
        title="What reading an index cache asks the allocator for",
        question=f"What is the largest request for {a['rows']:,} rows at {a['context']:,} tokens, and what fits?",
        answer=_answer(dataset),
        figures=(_peaks(dataset),),
        tables=tuple(table for table in (_sizes(dataset), _sources(dataset), _budget(dataset)) if table is not None),
        method=(
            "Predicted: every tensor that a path asks for, from shapes alone, with the line that asks and how long it "
            "is held. The peak leaves out inputs (cache, query codes, head weights).",
            "Measured: `unfused` and `transformers` run their own code on fake tensors, which have shapes and no data, "
            "while each storage is counted as it comes and goes; for `reference` XLA says what the compiled block "
            "needs, and its two numpy arrays are counted. Device figures are records of another run.",
            "Modelled only: `deepgemm` and the `sglang` paths, from the tensors that their published code names; the "
            "peak takes all tensors of one pass as held at once.",
        ),
        environment=tuple((name, str(a[name])) for name in ("python", "platform", "cpus", *PACKAGES) if name in a),
        command=str(a["command"]),
    )


def _entries(dataset: xr.Dataset) -> list[xr.Dataset]:
    return [dataset.isel(path_format=i) for i in range(dataset.sizes["path_format"])]


def _answer(dataset: xr.Dataset) -> tuple[str, ...]:
    a = dataset.attrs
    product = a["rows"] * a["heads"] * a["keys"] * 4
    asking = [one for one in _entries(dataset) if float(one.largest) == product]
    sentences = [
        f"One float32 product with a head axis takes {a['rows']:,} x {a['keys']:,} x {a['heads']} x 4 = {product:,} "
        f"bytes ({size(product)})"
        + (f": the largest request of {', '.join(str(one.path.item()) for one in asking)}." if asking else ".")
    ]
    by_peak = sorted(_entries(dataset), key=lambda one: float(one.peak))
    least, most = by_peak[0], by_peak[-1]
    sentences.append(
        f"Peaks go from {size(float(least.peak))} ({least.path.item()}) to {size(float(most.peak))} "
        f"({most.path.item()}, {most.format.item()}), "
        f"whose largest request is: {most.largest_name.item()}."
    )
    compared = dataset.where(dataset.peak_measured.notnull(), drop=True)
    error = float(abs(compared.peak / compared.peak_measured - 1).max())
    sentences.append(f"Where a peak was measured, the prediction is within {max(error, 1e-4):.2%} of it.")
    return tuple(sentences)


def _peaks(dataset: xr.Dataset) -> Figure:
    entries = _entries(dataset)[::-1]
    names = [f"{one.path.item()} {one.format.item()}" for one in entries]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i, (label, variable) in enumerate((("peak", "peak"), ("largest request", "largest"))):
            values = [float(one[variable]) / GIB for one in entries]
            axes.plot(values, range(len(entries)), color=SERIES[i], marker=MARKERS[i], ls="", ms=5, label=label)
        for variable, label, marker in (("peak_measured", "measured", "|"), ("peak_device", "on a device", "x")):
            values = [float(one[variable]) / GIB for one in entries]
            if any(value == value for value in values):
                axes.plot(values, range(len(entries)), color=INK, marker=marker, ls="", ms=9, label=label)
        axes.set_yticks(range(len(entries)), names)
        axes.set(xscale="log", xlabel="GiB")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)

    told = "; ".join(
        f"{name}: peak {size(float(one.peak))}, largest {size(float(one.largest))}"
        for name, one in zip(names, entries, strict=True)
    )
    caption = "Most bytes held at once, and the largest single request, of each path and format; inputs not counted."
    return Figure("peaks", caption, told, svg_of("peaks", 4.6, draw))


def _sizes(dataset: xr.Dataset) -> Table:
    names = ("cache", "gather", "head_axis", "logits", "largest", "peak", "peak_measured", "peak_device")
    rows = [
        (str(one.path.item()), str(one.format.item()), *(size(float(one[name])) for name in names))
        for one in _entries(dataset)
    ]
    columns = ("path", "format", "cache", "gather", "head axis", "logits", "largest", "peak", "measured", "on a device")
    devices = sorted({str(name) for name in dataset.device.values if name})
    caption = "Largest request of each kind, of all, and the most held at once."
    return Table(f"{caption} Device: {', '.join(devices) or 'no record'}.", columns, tuple(rows), labels=2)


def _sources(dataset: xr.Dataset) -> Table:
    rows = [
        tuple(str(one[name].item()) for name in ("path", "format", "largest_name", "largest_source", "basis"))
        for one in _entries(dataset)
    ]
    return Table(
        "Who asks for the largest tensor.", ("path", "format", "tensor", "line", "known from"), tuple(rows), labels=5
    )


def _budget(dataset: xr.Dataset) -> Table | None:
    a = dataset.attrs
    if "budget" not in a:
        return None
    rows = [
        (
            str(one.path.item()),
            str(one.format.item()),
            size(float(one.needed)),
            f"{int(one.budget_context):,}",
            f"{int(one.budget_rows):,}",
        )
        for one in _entries(dataset)
    ]
    columns = ("path", "format", "needs", f"tokens at {a['rows']:,} rows", f"rows at {a['context']:,} tokens")
    return Table(f"What fits {size(a['budget'])}: cache of one layer, query and peak.", columns, tuple(rows), labels=2)

"""The memory study as text."""

from __future__ import annotations

import xarray as xr

from dsa_crosscheck.compare.studies.text_table import text_table

COLUMNS = {
    "cache": "cache",
    "gather": "gather",
    "head_axis": "head axis",
    "logits": "logits",
    "largest": "largest",
    "peak": "peak",
    "peak_measured": "measured",
    "peak_device": "device",
}


def size(value: float) -> str:
    """Bytes with a binary unit, three digits; ``-`` for NaN and for none at all."""
    if value != value or value == 0:
        return "-"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.2f} {unit}" if value < 100 * scale else f"{value / scale:.0f} {unit}"
    return f"{value:.0f} B"


def _short(value: float) -> str:
    return size(value).replace(" ", "").replace("iB", "")


def render(dataset: xr.Dataset) -> str:
    """The tables of sizes, of the largest requests, and of what fits a budget if one was given."""
    a = dataset.attrs
    columns = {n: c for n, c in COLUMNS.items() if n != "peak_device" or bool(dataset[n].notnull().any())}
    sizes = [[*_name(one), *(_short(float(one[name])) for name in columns)] for one in _entries(dataset)]
    lines = [
        f"dsa-crosscheck study memory      context {a['context']:,}   keys {a['keys']:,}   rows {a['rows']:,}",
        "",
        *text_table(["path", "format", *columns.values()], sizes, labels=2),
        "",
        "bytes, binary units; gather, head axis, logits: largest request of that kind; largest: of all; peak: held",
        "  at once, inputs not counted; measured: on fake tensors, or by XLA (reference); device: recorded on one;",
        "  sglang and deepgemm are modelled",
        "",
        "largest request",
    ]
    for (path, largest, name, source), formats in _largest(dataset).items():
        lines.append(f"  {path} ({', '.join(formats)}): {largest:,} bytes, {name}")
        lines.append(f"    {source}")
    product = a["rows"] * a["heads"] * a["keys"] * 4
    lines += [
        "",
        f"one float32 product with a head axis: {a['rows']:,} rows x {a['keys']:,} keys x {a['heads']} heads x 4 bytes",
        f"  = {product:,} bytes ({size(product)})",
    ]
    if "budget" in a:
        lines += ["", *_budget(dataset)]
    return "\n".join(lines)


def _largest(dataset: xr.Dataset) -> dict[tuple[str, int, str, str], list[str]]:
    """Formats by what they share: path, bytes, names and source of the largest request."""
    found: dict[tuple[str, int, str, str], list[str]] = {}
    for one in _entries(dataset):
        path, format_name = _name(one)
        key = (path, int(one.largest), str(one.largest_name.item()), str(one.largest_source.item()))
        found.setdefault(key, []).append(format_name)
    return found


def _budget(dataset: xr.Dataset) -> list[str]:
    a = dataset.attrs
    rows = []
    for one in _entries(dataset):
        fits = "yes" if float(one.needed) <= a["budget"] else "no"
        rows.append(
            [*_name(one), size(float(one.needed)), fits, f"{int(one.budget_context):,}", f"{int(one.budget_rows):,}"]
        )
    columns = ["path", "format", "needs", "fits", f"context at {a['rows']:,} rows", f"rows at {a['context']:,}"]
    title = f"budget {size(a['budget'])}: cache of one layer, query and peak"
    return [title, "", *text_table(columns, rows, labels=2)]


def _entries(dataset: xr.Dataset) -> list[xr.Dataset]:
    return [dataset.isel(path_format=i) for i in range(dataset.sizes["path_format"])]


def _name(one: xr.Dataset) -> list[str]:
    return [str(one.path.item()), str(one.format.item())]

"""Study ``ordering``: when is the order of the elements in a stored vector of no consequence?

A dot product does not depend on the order that its operands share. So any order is equivalent to the
natural, lane-major one as long as both sides use it and the stored values are the same: true where a
vector has one scale or none, false for fp4 when the order moves elements between the groups of 32 that
share a scale. With one side alone in another order, the products belong to no pair of elements.
"""

from __future__ import annotations

import argparse
from io import StringIO

import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.noise import overlaps
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.studies.stored_order import StoredOrder
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.lanes import lane_permutation, random_order
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import Quantised
from dsa_crosscheck.reference.trace import exact_scores

WIDTH = 100
MODEL = "ieee-fp32"
SIDES = ("both", "key", "query")
NAMED_ORDERS = ("lane-major", "strided", "sequency", "bit-reversed")
ORDERS = (*NAMED_ORDERS, "random")
SAMPLE = {"rows": 2, "heads": 8, "keys": 64}
"""Dot products compared one by one, since exact summation is slow."""


def _power_of_two(c: Conventions) -> Conventions:
    return c.with_field("key.scale", "power-of-two").with_field("query.scale", "power-of-two")


FORMATS: dict[str, Conventions] = {
    "bf16": PRESETS["sglang-v4-bf16"].conventions,
    "fp8": PRESETS["sglang-v4-fp8"].conventions,
    "fp8-pow2": _power_of_two(PRESETS["sglang-v4-fp8"].conventions),
    "fp4": PRESETS["sglang-v4-fp4"].conventions,
}


def run(args: argparse.Namespace) -> xr.Dataset:
    """Measure every format, order and side.

    Rows whose selection can be wrong (more keys than k) enter the overlaps. ``ValueError`` when there
    is none, or for sizes that the case does not have.
    """
    inputs = _inputs(args)
    orders = {name: lane_permutation(name, inputs.geometry.head_dim) for name in NAMED_ORDERS}
    orders["random"] = random_order(inputs.geometry.head_dim, args.seed)
    measured = [[_measure(inputs, c, order) for order in orders.values()] for c in FORMATS.values()]
    variables = {
        name: (
            ("format", "order", "side")[: 2 + np.ndim(value)],
            np.array([[m[name] for m in row] for row in measured]),
        )
        for name, value in measured[0][0].items()
    }
    lengths = Setup(inputs, FORMATS["fp8"], model(MODEL)).trace.lengths
    searched = lengths[lengths > inputs.geometry.topk]
    attributes = {
        **{name: getattr(args, name) for name in ("case", "context", "rows", "seed")},
        "topk": inputs.geometry.topk,
        "searched_rows": searched.size,
        "chance_overlap": float((inputs.geometry.topk / searched).mean()),
        "bound": MODEL,
        **{name: str(value) for name, value in environment().items()},
    }
    dataset = xr.Dataset(variables, {"format": list(FORMATS), "order": list(ORDERS), "side": list(SIDES)}, attributes)
    for name, what in MEANING.items():
        dataset[name].attrs["long_name"] = what
    return dataset


MEANING = {
    "dots_equal": "fraction of sampled, correctly rounded dot products that equal those in natural order",
    "score_change": "largest difference of float64 scores from natural order, over their RMS",
    "codes_equal": "fraction of stored codes that are those of natural order, moved",
    "scales_changed": "scales under which some element lies that had another scale in natural order",
    "scales": "scales of all keys and query heads",
    "exact_overlap": "overlap of the selection with that of exact, unquantised scores",
    "overlap": "overlap of the selection with that of natural order, by side that is permuted",
    "kernel_overlap": "the same of the emulated kernels' scores",
    "kernel_error": "largest error of the emulated kernels' scores over the bound",
    "kernel_change": "largest difference of the kernels' scores from natural order over both bounds together",
}
"""Variables of the dataset; all but the overlaps by side are for an order that both sides share."""


def _inputs(args: argparse.Namespace) -> Inputs:
    keys = args.context // Geometry().compress_ratio
    topk = args.topk if args.topk is not None else max(1, keys // 4)
    inputs = build_case(args.case, context=args.context, rows=args.rows, seed=args.seed, topk=topk)
    if not (inputs.query_positions // inputs.geometry.compress_ratio > topk).any():
        raise ValueError(f"`--context` should let a row see more than k={topk} keys, got {args.context}")
    return inputs


def _measure(inputs: Inputs, c: Conventions, order: np.ndarray) -> dict[str, float | list[float]]:
    """All variables of one format and order; the overlaps are lists in the order of ``SIDES``."""
    setup = Setup(inputs, c, model(MODEL))
    natural = np.arange(order.size)
    before = StoredOrder(setup, natural, natural)
    moved = {
        "both": StoredOrder(setup, order, order),
        "key": StoredOrder(setup, order, natural),
        "query": StoredOrder(setup, natural, order),
    }
    after = moved["both"]
    (old, old_bound), (new, new_bound) = before.judged, after.judged
    seen = np.isfinite(old.values)
    bound = old_bound[seen] + new_bound[seen]
    lengths, topk = setup.trace.lengths, inputs.geometry.topk
    searched = lengths > topk

    def overlap(first: np.ndarray, second: np.ndarray) -> float:
        return float(overlaps(before.selection(first), before.selection(second), lengths, topk)[searched].mean())

    changed, scales = np.array(
        [
            _changed_scales(before.keys, after.keys, order, c.key),
            _changed_scales(before.query, after.query, order, c.query),
        ]
    ).sum(axis=0)
    codes = [a.codes == b.codes[..., order] for a, b in ((after.keys, before.keys), (after.query, before.query))]
    rms = float(np.sqrt((old.values[seen] ** 2).mean()))
    old_kernel, new_kernel = before.kernel_scores.astype(np.float64), after.kernel_scores.astype(np.float64)
    return {
        "dots_equal": float((after.dots(**SAMPLE) == before.dots(**SAMPLE)).mean()),
        "score_change": float(np.abs(new.values[seen] - old.values[seen]).max()) / rms,
        "codes_equal": float(np.concatenate([same.reshape(-1) for same in codes]).mean()),
        "scales_changed": int(changed),
        "scales": int(scales),
        "exact_overlap": overlap(new.values, exact_scores(inputs, c).values),
        "overlap": [overlap(moved[side].judged[0].values, old.values) for side in SIDES],
        "kernel_overlap": [overlap(moved[side].kernel_scores, before.kernel_scores) for side in SIDES],
        "kernel_error": float((np.abs(new_kernel[seen] - new.values[seen]) / new_bound[seen]).max()),
        "kernel_change": float((np.abs(new_kernel[seen] - old_kernel[seen]) / bound).max()),
    }


def _changed_scales(before: Quantised, after: Quantised, order: np.ndarray, codec: Codec) -> tuple[int, int]:
    """Scales that differ from what some element under them had before, and all scales."""
    if not codec.scale_bytes:
        return 0, 0
    width = order.size // after.scales.shape[-1]
    had = np.repeat(before.scales, width, axis=-1)[..., order].reshape(*after.scales.shape, width)
    return int((had != after.scales[..., None]).any(axis=-1).sum()), after.scales.size


def render(dataset: xr.Dataset) -> str:
    """The study as one table, a line for each format and order, and what it says."""
    a = dataset.attrs
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ("format", "order", "equal", "codes", "scales", "overlap", "key", "query", "exact", "error", "change")
    for name in columns:
        table.add_column(name, justify="left" if name in ("format", "order") else "right", no_wrap=True)
    for kind in dataset.format.values:
        for order in dataset.order.values:
            table.add_row(str(kind), str(order), *_cells(dataset.sel(format=kind, order=order)))
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    lines = [
        f"dsa-crosscheck study ordering      case {a['case']}   context {a['context']}   k {a['topk']}"
        f"   rows {a['searched_rows']}   seed {a['seed']}",
        "",
        *(line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")),
        "",
        "key and query both in that order: equal = dot products, bit for bit; codes = those of natural",
        "  order, moved; scales = changed of all; overlap = of selections with natural order; exact = with",
        f"  unquantised scores; error, change = of emulated float32 scores over the bound ({a['bound']})",
        f"key, query = overlap when one of them alone is in that order; chance (k / keys) is {a['chance_overlap']:.3f}",
        "",
        *_findings(dataset),
    ]
    return "\n".join(lines)


def _cells(one: xr.Dataset) -> list[str]:
    overlap, kernel = one.overlap.values, one.kernel_overlap.values
    both, key, query = (f"{min(a, b):.3f}" for a, b in zip(overlap, kernel, strict=True))
    scales = f"{int(one.scales_changed):,}/{int(one.scales):,}" if int(one.scales) else "-"
    return [
        f"{float(one.dots_equal):.0%}",
        f"{float(one.codes_equal):.0%}",
        scales,
        both,
        key,
        query,
        f"{float(one.exact_overlap):.3f}",
        f"{float(one.kernel_error):.1e}",
        f"{float(one.kernel_change):.1e}",
    ]


def _findings(dataset: xr.Dataset) -> list[str]:
    """A sentence for the orders that are equivalent in each format, one for those that are not."""
    lines = []
    for kind in dataset.format.values:
        one = dataset.sel(format=kind)
        same = (one.dots_equal.values == 1) & (one.codes_equal.values == 1) & (one.scales_changed.values == 0)
        names = one.order.values.astype(str)
        lines.append(f"{kind}: equivalent when shared: {', '.join(names[same]) or 'none'}")
        if not same.all():
            exact = one.exact_overlap.values
            cost = exact[~same] - exact[names == "lane-major"]
            change = f"{cost.min():+.4f} to {cost.max():+.4f}"
            lines += [
                f"    not: {', '.join(names[~same])}",
                f"    their overlap with exact scores differs by {change} from lane-major",
            ]
    return lines

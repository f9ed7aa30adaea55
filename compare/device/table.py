"""A record of the bench as text: a table for each stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsa_crosscheck.compare.device.ratios import WORK
from dsa_crosscheck.compare.device.verdicts import failure
from dsa_crosscheck.compare.studies.text_table import text_table

COLUMNS = ["candidate", "format", "shape", "us", "of copy", "TFLOP/s", "ratio", "checked"]
LABELS = 3


def render_record(record: Mapping[str, Any]) -> str:
    """What was timed, a table a stage, then who was left out and why."""
    lines = [
        f"dsa-crosscheck study cost      {record['device']}   copy {record['copy_bytes_per_second'] / 1e12:.2f} TB/s   "
        f"commit {record['commit'] or 'not given'}",
        "us: median of turns, by graph replay, inputs rotated past the L2 cache; of copy: share of the copy's rate;",
        "ratio, checked: see below each table",
    ]
    ratios = {(*_work(first), peer): ratio for first in record["cost"] for peer, ratio in first["ratio_to"].items()}
    for stage in dict.fromkeys(entry["stage"] for entry in record["cost"]):
        rows = [
            _row(entry, _ratio_text(entry, ratios.get((*_work(entry), entry["candidate"]))))
            for entry in record["cost"]
            if entry["stage"] == stage
        ]
        lines += ["", stage, *text_table(COLUMNS, rows, LABELS)]
        # Where the first contender is left out, the next is the base.
        bases = dict.fromkeys(e["candidate"] for e in record["cost"] if e["stage"] == stage and e["ratio_to"])
        if bases:
            lines.append(f"ratio: time of {' or '.join(bases)} (base) over that of this one, in one run")
        lines.append(CHECKS[stage])
    left_out = dict.fromkeys(
        f"{e['candidate']} {e['stage']} {e['format']} {shape_of(e)} left out: {e['why']}" for e in record["left_out"]
    )
    return "\n".join([*lines, *([""] if left_out else []), *left_out])


CHECKS = {
    "score": "checked: worst |score - float64| over the bound, ieee-fp32 / tensor-core-fp8",
    "store": "checked: differing of compared bytes, against the emulated kernel",
    "select": "checked: wrong of compared rows, against the reference",
}


def shape_of(entry: Mapping[str, Any]) -> str:
    """Rows by keys, with next_n and k where they matter."""
    if entry["stage"] == "store":
        return f"{entry['rows']:,}"
    text = f"{entry['rows'] // entry.get('next_n', 1):,} x {entry['keys']:,}"
    if entry.get("next_n", 1) > 1:
        text += f" x {entry['next_n']}"
    return text + (f" k {entry['k']:,}" if "k" in entry else "")


def _work(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in WORK)


def _ratio_text(entry: Mapping[str, Any], ratio: float | None) -> str:
    if ratio is None:
        return "base" if entry["ratio_to"] else "-"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.4f}"


def _row(entry: Mapping[str, Any], ratio: str) -> list[str]:
    flops = entry.get("flops_per_second")
    return [
        entry["candidate"],
        entry["format"],
        shape_of(entry),
        f"{entry['seconds'] * 1e6:,.1f}",
        f"{entry['copy_fraction']:.0%}",
        f"{flops / 1e12:.1f}" if flops else "-",
        ratio,
        _checked(entry) + ("  WRONG" if failure(entry) else ""),
    ]


def _checked(entry: Mapping[str, Any]) -> str:
    if "worst_error_over_bound" in entry:
        return " / ".join(f"{factor:.2g}" for factor in entry["worst_error_over_bound"].values())
    if "differing" in entry:
        return f"{entry['differing']:,} of {entry['compared']:,}"
    return f"{entry['wrong_rows']} of {entry['checked_rows']}"

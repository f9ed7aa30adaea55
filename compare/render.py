"""A report as text: one table, two kinds of difference kept apart, one verdict. No colour needed."""

from __future__ import annotations

import shlex
import textwrap
from io import StringIO

from rich.console import Console
from rich.table import Table

from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import MEANING

WIDTH = 100
_DIGITS = {"calc_diff": "3g", "cosine": "9f"}


def render(report: Report) -> str:
    """The report in at most 100 columns."""
    lines = [
        f"dsa-crosscheck compare      reference: JAX float64, {report.conventions}      candidate: {report.candidate}",
        f"case {_case(report)}      bound: {report.bound}",
    ]
    lines += ["", *_failure(report)] if report.verdict.failed else [""]
    lines += _table(report.stages).split("\n")
    told = next((r for r in report.stages if r.verdict.failed), None)
    lines += [f"  {r.stage}: {r.note}" for r in report.stages if r.note and r is not told]
    lines += [f"  not offered by the candidate: {', '.join(report.not_offered)}"] if report.not_offered else []
    lines += [f"  {note}" for note in report.notes]
    lines += [f"  ties: {report.census.sentence}"] if report.census and report.census.sentence else []
    lines += ["", *_noise(report), *_error(report), *_swaps(report), ""]
    lines += [f"verdict: {report.verdict.value} - {MEANING[report.verdict]}"]
    text = [part for line in lines for part in _folded(line)]
    return "\n".join([*text, *_replay(report.replay)])


def _folded(line: str) -> list[str]:
    """``line`` without trailing blanks, broken at words where it is too wide."""
    if len(line.rstrip()) <= WIDTH and "\n" not in line:
        return [line.rstrip()]
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ") or [""]


def _replay(command: str) -> list[str]:
    """The command as a shell takes it: broken with backslashes before the option that is too wide."""
    if not command:
        return []
    parts: list[str] = []
    for word in shlex.split(command):
        quoted = shlex.quote(word)
        if parts and parts[-1].startswith("--") and not quoted.startswith("--"):
            parts[-1] += f" {quoted}"
        else:
            parts.append(quoted)
    lines = ["replay:"]
    for part in parts:
        if len(lines[-1]) + len(part) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}"
    return lines


def _case(report: Report) -> str:
    return "   ".join(f"{value}" if name == "name" else f"{name} {value}" for name, value in report.case.items())


def _failure(report: Report) -> list[str]:
    fault = next(r for r in report.stages if r.verdict.failed)
    where = f" at {fault.at}" if fault.at else ""
    lines = [f"FIRST FAULT: {fault.stage}{where}", f"  {fault.note}" if fault.note else "  see the table"]
    if report.explanation is not None:
        found = report.explanation
        lines[0] += f"   operand: {found.operand}"
        lines += [f"CAUSE: {found.cause}", f"WHERE: {found.where}"]
    return [*lines, ""]


def _table(stages: tuple[StageResult, ...]) -> str:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("stage", "elements", "differing", "worst", "at (page:offset)", "bound", "verdict"):
        table.add_column(name, justify="right" if name in ("elements", "differing") else "left", overflow="fold")
    for r in stages:
        table.add_row(
            r.stage,
            f"{r.elements:,}",
            f"{r.differing:,}",
            _with_unit(r),
            r.at,
            _number(r.bound),
            r.verdict.value,
        )
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    return buffer.getvalue().rstrip("\n")


def _with_unit(result: StageResult) -> str:
    if result.worst is None:
        return ""
    unit = result.unit.removesuffix("s") if result.worst == 1 else result.unit
    return f"{_number(result.worst)} {unit}".rstrip()


def _noise(report: Report) -> list[str]:
    n = report.noise
    return [
        f"noise (format against exact):       overlap mean {n.overlap_mean:.4f}, worst row {n.overlap_min:.4f}   "
        f"SNR {n.snr_db:.1f} dB",
        "                                    the format's cost, not the kernel's",
    ]


def _error(report: Report) -> list[str]:
    lines = []
    if report.selection is not None:
        s = report.selection
        lines.append(f"overlap mean {s.overlap_mean:.4f}, worst row {s.overlap_min:.4f}")
    if report.error:
        lines.append("   ".join(f"{name} {value:.{_DIGITS[name]}}" for name, value in report.error.items()))
    factors = [r.factor for r in report.stages if r.factor is not None]
    # No multiple of a bound makes up for a fault that has none.
    if factors and not any(r.verdict.failed and r.factor is None for r in report.stages):
        lines.append(f"smallest multiple of the bounds that passes: {max(factors):.3g}")
    heads = ["error (kernel against reference):", *[""] * len(lines)]
    return [f"{head:36}{line}" for head, line in zip(heads, lines, strict=False)]


def _swaps(report: Report) -> list[str]:
    selection = report.selection
    if selection is None or not selection.swaps:
        return []
    lines = [f"swapped keys, end to end ({len(selection.swaps)} of {selection.swap_count}, widest first):"]
    lines += [
        f"  row {s.row}: key {s.missed} ({s.missed_score:.9g}) missed for key {s.returned} ({s.returned_score:.9g})"
        f"   gap {s.gap:.3g}   bound {s.bound:.3g}"
        for s in selection.swaps
    ]
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"

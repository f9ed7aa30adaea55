"""Cross-checks of GPU candidates over cases and contexts, the verdicts kept in a record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from dsa_crosscheck.compare.candidates.registry import CandidateError
from dsa_crosscheck.compare.commands.compare import add_options, report_of
from dsa_crosscheck.compare.device.verdicts import OURS
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.studies.text_table import text_table

PRESETS = {
    "cuda": ("sglang-v4-fp8", "sglang-v4-bf16", "sglang-v4-fp4"),
    "cuda-mma": ("sglang-v4-fp8", "sglang-v4-bf16", "sglang-v4-fp4"),
    "deepgemm": ("deepgemm-fp8",),
    "sglang": ("sglang-v4-fp8", "sglang-v4-fp4"),
}
"""What each candidate is judged by."""

GENERATED = ("gaussian", "outlier", "plateau", "exact-integers", "spread")
CASES = {512: GENERATED, 8192: (*GENERATED, "captured-text"), 131072: GENERATED, 1048576: ("gaussian",)}
"""Cases by raw tokens of context; captured text is no longer."""

WHAT = ("candidate", "preset", "case", "context")
PASSED = ("IDENTICAL", "TIE", "WITHIN_BOUND")


def measure(
    candidates: Sequence[str],
    contexts: Sequence[int] = tuple(CASES),
    *,
    done: Sequence[dict[str, Any]] = (),
    keep: Callable[[list[dict[str, Any]]], None] = lambda records: None,
) -> list[dict[str, Any]]:
    """A record for each comparison: verdict, first fault, bound, and what differs by how much in each stage.

    What can't be had is a record with ``left_out``, the reason; whatever our own raises is raised, unless it
    can't be had. Progress goes to the standard error stream. Records of ``done`` are taken over, those of other
    candidates too, and made again only where they were left out; ``keep`` gets all records so far after each
    comparison, so that a run that is stopped can go on.
    ``ValueError`` for a candidate without presets here, or a context without cases.
    """
    for name in candidates:
        if name not in PRESETS:
            raise ValueError(f"`--candidate` should name some of {tuple(PRESETS)}, got {name!r}")
    for context in contexts:
        if context not in CASES:
            raise ValueError(f"`--context` should name some of {tuple(CASES)}, got {context}")
    known = {_what(one): one for one in done}
    if known:
        print(f"{len(known)} comparisons taken over from a run that was stopped", file=sys.stderr, flush=True)
    wanted = [
        (name, preset, case, context)
        for name in candidates
        for preset in PRESETS[name]
        for context in contexts
        for case in CASES[context]
    ]
    for what in wanted:
        if "verdict" in known.get(what, {}):
            continue
        known[what] = dict(zip(WHAT, what, strict=True)) | _found(*what)
        print(*what, known[what].get("verdict", known[what].get("left_out")), file=sys.stderr, flush=True)
        keep(list(known.values()))
    return list(known.values())


def _what(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in WHAT)


def _found(name: str, preset: str, case: str, context: int) -> dict[str, Any]:
    try:
        return _record(_report(name, preset, case, context))
    except Exception as error:  # a peer's library may fail in ways of its own; the record says how
        if name in OURS and not isinstance(error, CandidateError):
            raise
        return {"left_out": f"{type(error).__name__}: {error}".split("\n")[0]}


def failed(records: Sequence[dict[str, Any]]) -> bool:
    """Whether a candidate of our own did not pass somewhere; others are reported, not judged."""
    return any(one["candidate"] in OURS and one.get("verdict") not in PASSED for one in records)


def render(records: Sequence[dict[str, Any]]) -> str:
    """Records as an aligned table; ``of bound``: the largest error over its bound in any stage."""
    head = ("candidate", "preset", "case", "context", "verdict", "of bound", "first fault")
    lines, reasons = [], []
    for one in records:
        line = [one["candidate"], one["preset"], one["case"], f"{one['context']:,}"]
        if "left_out" in one:
            lines.append([*line, "left out", "", ""])
            reasons.append(f"{one['candidate']} {one['preset']} left out: {one['left_out']}")
            continue
        worst = max((stage["factor"] or 0.0 for stage in one["stages"].values()), default=0.0)
        lines.append([*line, one["verdict"], f"{worst:.3g}", one["first_fault"] or ""])
    return "\n".join([*text_table(head, lines, labels=3), *dict.fromkeys(reasons)])


def _report(candidate: str, preset: str, case: str, context: int) -> Report:
    parser = argparse.ArgumentParser()
    add_options(parser)
    given = ["--candidate", candidate, "--preset", preset, "--case", case, "--context", str(context)]
    return report_of(parser.parse_args(given))


def _record(report: Report) -> dict[str, Any]:
    found = report.to_dict()
    kept = ("verdict", "elements", "differing", "factor", "unexplained")
    stages = {stage["stage"]: {name: stage[name] for name in kept} for stage in found["stages"]}
    names = ("verdict", "first_fault", "bound", "noise", "error", "not_offered", "notes", "replay")
    return {name: found[name] for name in names} | {"stages": stages}

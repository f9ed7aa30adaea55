"""``dsa-crosscheck mutants``: the checks themselves are checked, with faults put in on purpose."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dsa_crosscheck.compare.files import check_target, write_text

DEFAULT_PRESETS = {
    "reference": ("sglang-v4-fp8", "sglang-v4-fp4", "deepseek-v4"),
    "emulated": ("sglang-v4-fp8", "sglang-v4-fp4"),
}
"""By candidate. Together they have every format, bf16 points, a folded scale and scales beside codes."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("mutants", help="put faults into a right candidate and see which checks notice")
    option = parser.add_argument
    option("--preset", help="one preset (default: " + ", ".join(DEFAULT_PRESETS["reference"]) + ")")
    option("--all-presets", action="store_true", help="every preset")
    option(
        "--candidate",
        choices=tuple(DEFAULT_PRESETS),
        default="reference",
        help="what structural faults are put into; flips of conventions need the reference (default: %(default)s)",
    )
    option("--only", metavar="TEXT", help="mutants whose name contains TEXT")
    option("--json", type=Path, metavar="PATH", help="also write the matrix as JSON")
    option("--expected", type=Path, metavar="PATH", help="fail when a mutant that PATH records as killed survives")
    option("--record", type=Path, metavar="PATH", help="write to PATH which mutants are killed now")
    option(
        "--false-alarms",
        type=int,
        metavar="N",
        help="instead of mutants: N correct runs in random float32 arithmetic, none of which may fail",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when every fault is killed at its stage and nothing else is, or when no alarm is false."""
    presets = _presets(args)
    if args.false_alarms is not None:
        return _false_alarms(presets, args)
    for option, path in (("--json", args.json), ("--record", args.record)):
        check_target(option, path)
    if args.record is not None and args.only is not None:
        raise ValueError(f"`--record` should be given without `--only`, got --only {args.only}")
    from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
    from dsa_crosscheck.compare.candidates.registry import load
    from dsa_crosscheck.compare.mutants.expectations import lost_kills, read_kills, write_kills
    from dsa_crosscheck.compare.mutants.matrix import run_matrix
    from dsa_crosscheck.compare.mutants.table import render

    expected = read_kills(args.expected) if args.expected else None
    make_right = ReferenceCandidate if args.candidate == "reference" else lambda c: load(args.candidate, c)
    matrices = []
    lost: list[str] = []
    for name in presets:
        matrix = run_matrix(name, make_right, args.only, _progress)
        _progress("")
        matrices.append(matrix)
        print(render(matrix), end="\n\n")
        lost += lost_kills(matrix, expected, args.only) if expected is not None else ()
    for sentence in lost:
        print(f"LOST: {sentence}")
    if args.json is not None:
        write_text(args.json, json.dumps({m.preset: m.record() for m in matrices}, indent=1) + "\n")
    if args.record is not None:
        write_kills(args.record, tuple(matrices))
    return 1 if lost or any(m.problems for m in matrices) else 0


def _presets(args: argparse.Namespace) -> tuple[str, ...]:
    if args.preset and args.all_presets:
        raise ValueError(f"`--preset` should be left out with `--all-presets`, got {args.preset}")
    if args.preset:
        return (args.preset,)
    if not args.all_presets:
        return DEFAULT_PRESETS[args.candidate]
    from dsa_crosscheck.reference.presets import PRESETS

    return tuple(PRESETS)


def _false_alarms(presets: tuple[str, ...], args: argparse.Namespace) -> int:
    for option in ("only", "json", "expected", "record"):
        if getattr(args, option) is not None:
            raise ValueError(f"`--{option}` should be left out with `--false-alarms`, got {getattr(args, option)}")
    from dsa_crosscheck.compare.mutants.false_alarms import false_alarms

    found = false_alarms(presets, args.false_alarms, lambda done: _progress(f"run {done} of {args.false_alarms}"))
    _progress("")
    for alarm in found:
        print(f"FALSE ALARM: {alarm.preset}, {alarm.case}, seed {alarm.seed}: {alarm.verdict}, {alarm.fault}")
    print(f"{len(found)} false alarms in {args.false_alarms} correct runs of {', '.join(presets)}")
    return 1 if found else 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

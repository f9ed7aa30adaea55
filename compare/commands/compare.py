"""``dsa-crosscheck compare``: one candidate, one case, a verdict a stage."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsa_crosscheck.compare.files import check_target, write_text
from dsa_crosscheck.compare.repeatability.budget import REPEATS

if TYPE_CHECKING:
    from dsa_crosscheck.compare.report import Report
    from dsa_crosscheck.reference.geometry import Geometry
    from dsa_crosscheck.reference.inputs import Inputs

DEFAULT_CONTEXT = 8192
DEFAULT_ROWS = 24
DEFAULT_SWAPS = 20
KEYS_PER_PICK = 4
"""By default at most one key in this many is selected, so that a selection can be wrong."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("compare", help="compare a candidate with the reference, stage by stage")
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what a comparison is made of: also for commands that start from one."""
    option = parser.add_argument
    option(
        "--candidate",
        default="emulated",
        help="emulated, cuda, cuda-mma, deepgemm, sglang, unfused, transformers-v4, a plug-in, or "
        "package.module:object (default: %(default)s)",
    )
    option(
        "--preset",
        help="conventions to judge by (default: the candidate's own; sglang-v4-fp8 for the built-in kernels)",
    )
    option(
        "--case",
        default="captured-text",
        help="a generated case, captured-text, or the path of a case file, which has its own sizes "
        "(default: %(default)s)",
    )
    option("--context", type=int, metavar="TOKENS", help=f"raw tokens (default: {DEFAULT_CONTEXT})")
    option("--rows", type=int, metavar="N", help=f"query rows (default: {DEFAULT_ROWS}, or what the case holds)")
    option(
        "--topk",
        type=int,
        metavar="K",
        help="keys to select (default: a case file's own, else the preset's, at most a quarter of the keys)",
    )
    option("--seed", type=int, metavar="S", help="seed of a generated case (default: 0)")
    option(
        "--bound",
        metavar="MODEL",
        help="accumulator model (default: the one the candidate declares, else the one the conventions imply)",
    )
    option(
        "--repeat",
        type=int,
        default=REPEATS,
        metavar="N",
        help="times to repeat scores and selections, as far as a few seconds allow; 0 leaves out poison, guard "
        "bands and other batches too (default: %(default)s)",
    )
    option("--json", type=Path, metavar="PATH", help="also write the report as JSON")
    option(
        "--max-mismatches",
        type=int,
        default=DEFAULT_SWAPS,
        metavar="N",
        help="swapped keys to list (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Build the case, run the candidate, print the report."""
    report = report_of(args)
    print(report)
    return report.verdict.exit_code


def report_of(args: argparse.Namespace) -> Report:
    """The report that the options ask for, written as JSON where they say so."""
    check_target("--json", args.json)
    from dsa_crosscheck.compare.candidates.registry import load
    from dsa_crosscheck.compare.engine import crosscheck
    from dsa_crosscheck.reference.models import model
    from dsa_crosscheck.reference.presets import preset

    chosen = preset(args.preset) if args.preset else None
    if args.bound:
        model(args.bound)
    candidate = load(args.candidate, chosen.conventions if chosen else None)
    inputs = case_inputs(args, chosen.geometry if chosen else None, candidate)
    g = inputs.geometry
    case: dict[str, object] = {
        "name": args.case,
        "keys": int(inputs.key_counts.max(initial=0)),
        "requests": inputs.key_counts.size,
        "page": g.page_size,
        "rows": inputs.rows,
        "k": g.topk,
    }
    report = crosscheck(
        inputs,
        candidate,
        preset=chosen.conventions if chosen else None,
        bound=args.bound,
        max_mismatches=args.max_mismatches,
        repeat=args.repeat,
        case=case,
        replay=replay(args, g),
        progress=_progress,
    )
    if args.json is not None:
        write_text(args.json, report.to_json() + "\n")
    return report


def case_inputs(args: argparse.Namespace, geometry: Geometry | None, candidate: Any) -> Inputs:
    """The case that the options name, with k small enough for a selection to be wrong.

    ``ValueError`` for a name that is neither a case nor a file, or sizes that a case does not have.
    """
    from dsa_crosscheck.fixtures.cases import CASES, build_case
    from dsa_crosscheck.reference.geometry import Geometry as Sizes

    if args.case not in CASES:
        return _file_inputs(args, tuple(CASES))
    sizes = geometry or getattr(candidate, "geometry", None) or Sizes()
    context = DEFAULT_CONTEXT if args.context is None else args.context
    inputs = build_case(
        args.case,
        context=context,
        rows=_default_rows(args.case, context) if args.rows is None else args.rows,
        topk=args.topk,
        seed=args.seed or 0,
        geometry=sizes,
    )
    if args.topk is None:
        most = max(1, int(inputs.key_counts.max(initial=0)) // KEYS_PER_PICK)
        inputs = replace(inputs, geometry=replace(inputs.geometry, topk=min(sizes.topk, most)))
    return inputs


def _file_inputs(args: argparse.Namespace, cases: tuple[str, ...]) -> Inputs:
    """The case file that ``--case`` names."""
    from dsa_crosscheck.fixtures.case_file import load_case

    if not Path(args.case).is_file():
        raise ValueError(f"`--case` should be one of {', '.join(cases)}, or the path of a file; got {args.case!r}")
    for option in ("context", "rows", "seed"):
        value = getattr(args, option)
        if value is not None:
            raise ValueError(f"`--{option}` should be left out: the case file {args.case!r} has its own, got {value}")
    inputs = load_case(args.case)
    if args.topk is None:
        return inputs
    return replace(inputs, geometry=replace(inputs.geometry, topk=args.topk))


def _default_rows(case: str, context: int) -> int:
    """``DEFAULT_ROWS``, or the rows that were captured within the context if they are fewer."""
    if case != "captured-text":
        return DEFAULT_ROWS
    from dsa_crosscheck.fixtures.captured import load_captured

    held = int((load_captured().query_positions < context).sum())
    return max(1, min(DEFAULT_ROWS, held))


def replay(args: argparse.Namespace, geometry: Geometry) -> str:
    """The command that repeats this comparison."""
    options = {
        "candidate": args.candidate,
        "preset": args.preset,
        "case": args.case,
        "context": args.context,
        "rows": args.rows,
        "topk": geometry.topk,
        "seed": args.seed,
        "bound": args.bound,
        "repeat": None if args.repeat == REPEATS else args.repeat,
        "max-mismatches": None if args.max_mismatches == DEFAULT_SWAPS else args.max_mismatches,
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["dsa-crosscheck", "compare", *words])


def _progress(stage: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{stage} ...", end="" if stage != "noise" else "\r\x1b[K", file=sys.stderr, flush=True)

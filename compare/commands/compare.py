"""``dsa-crosscheck compare``: one candidate, one case, a verdict a stage."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa_crosscheck.reference.geometry import Geometry
    from dsa_crosscheck.reference.inputs import Inputs

DEFAULT_CONTEXT = 8192
DEFAULT_ROWS = 24
KEYS_PER_PICK = 4
"""By default at most one key in this many is selected, so that a selection can be wrong."""


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("compare", help="compare a candidate with the reference, stage by stage")
    parser.add_argument("--candidate", default="emulated", help="emulated, unfused, transformers-v4, a plug-in, or package.module:object (default: %(default)s)")
    parser.add_argument("--preset", help="conventions to judge by (default: the candidate's own; sglang-v4-fp8 for the built-in kernels)")
    parser.add_argument("--case", default="captured-text", help="a generated case, captured-text, or the path of a case file (default: %(default)s)")
    parser.add_argument("--context", type=int, metavar="TOKENS", help=f"raw tokens (default: the case's own length, or {DEFAULT_CONTEXT})")
    parser.add_argument("--rows", type=int, metavar="N", help=f"query rows (default: {DEFAULT_ROWS}, or what the case holds)")
    parser.add_argument("--topk", type=int, metavar="K", help="keys to select (default: the preset's, at most a quarter of the keys)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="seed of a generated case (default: %(default)s)")
    parser.add_argument("--bound", metavar="MODEL", help="accumulator model (default: the one the conventions imply)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the report as JSON")
    parser.add_argument("--max-mismatches", type=int, default=20, metavar="N", help="swapped keys to list (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Build the case, run the candidate, print the report."""
    if args.json is not None and not args.json.parent.is_dir():
        raise ValueError(f"`--json` should be a path in an existing folder, got {args.json}")
    from dsa_crosscheck.compare.candidates.registry import load
    from dsa_crosscheck.compare.engine import crosscheck
    from dsa_crosscheck.compare.files import write_text
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
        case=case,
        replay=replay(args, g),
        progress=_progress,
    )
    print(report)
    if args.json is not None:
        write_text(args.json, report.to_json() + "\n")
    return report.verdict.exit_code


def case_inputs(args: argparse.Namespace, geometry: Geometry | None, candidate: Any) -> Inputs:
    """The case that the options name, with k small enough for a selection to be wrong."""
    from dsa_crosscheck.fixtures.cases import build_case
    from dsa_crosscheck.reference.geometry import Geometry as Sizes

    sizes = geometry or getattr(candidate, "geometry", None) or Sizes()
    inputs = build_case(
        args.case,
        context=args.context or DEFAULT_CONTEXT,
        rows=args.rows or DEFAULT_ROWS,
        topk=args.topk,
        seed=args.seed,
        geometry=sizes,
    )
    if args.topk is None:
        most = max(1, int(inputs.key_counts.max(initial=0)) // KEYS_PER_PICK)
        inputs = replace(inputs, geometry=replace(inputs.geometry, topk=min(sizes.topk, most)))
    return inputs


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
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["dsa-crosscheck", "compare", *words])


def _progress(stage: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{stage} ...", end="" if stage != "noise" else "\r\x1b[K", file=sys.stderr, flush=True)

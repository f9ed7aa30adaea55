"""``dsa-crosscheck explain``: why a comparison fails, with everything that was tried."""

from __future__ import annotations

import argparse
from typing import Any

from dsa_crosscheck.compare.commands.compare import add_options, report_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("explain", help="compare, and list every cause, graft and group that was looked at")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The diagnosis of the comparison that the options name; its exit code is the comparison's."""
    from dsa_crosscheck.compare.diagnosis.text import explanation_text

    report = report_of(args)
    print(explanation_text(report))
    return report.verdict.exit_code

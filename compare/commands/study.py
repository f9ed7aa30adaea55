"""``dsa-crosscheck study``: one measurement, as a table and as a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dsa_crosscheck.compare.studies.table import STUDIES, Study


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, with a subcommand for each study."""
    parser = commands.add_parser("study", help="measure what a choice costs or changes")
    names = parser.add_subparsers(title="studies", required=True, metavar="STUDY")
    for study in STUDIES:
        one = names.add_parser(study.name, help=study.what, description=study.what)
        study.options(one)
        one.add_argument("--out", type=Path, metavar="PATH", help="also write the dataset as netCDF-4")
        one.add_argument("--json", type=Path, metavar="PATH", help="also write the dataset as JSON")
        one.set_defaults(run=run, study=study)


def run(args: argparse.Namespace) -> int:
    """Run the study, print its table, write its dataset where the options say so; exit code 0."""
    for option in ("out", "json"):
        path = getattr(args, option)
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(f"`--{option}` should be the path of a file in an existing folder, got {path}")
    from dsa_crosscheck.compare.studies.output import write_json, write_netcdf

    study: Study = args.study
    dataset = study.run(args)
    print(study.render(dataset))
    if args.out is not None:
        write_netcdf(args.out, dataset)
    if args.json is not None:
        write_json(args.json, dataset)
    return 0

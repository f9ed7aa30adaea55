"""``dsa-crosscheck study``: one measurement, as a table and as a dataset."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dsa_crosscheck.compare.files import check_target
from dsa_crosscheck.compare.studies.table import STUDIES, Study


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, with a subcommand for each study."""
    parser = commands.add_parser("study", help="measure what a choice costs or changes")
    names = parser.add_subparsers(title="studies", required=True, metavar="STUDY")
    for study in STUDIES:
        one = names.add_parser(study.name, help=study.what, description=study.what)
        study.options(one)
        one.set_defaults(run=run, study=study, page=[])
        what = "also write the dataset as netCDF-4"
        if study.pages is not None:
            what += ", or unless PATH ends in .nc a whole report into that folder"
            page = "also write the report's page alone, to files that end in .html or .md"
            one.add_argument("--page", type=Path, nargs="+", metavar="FILE", help=page)
        one.add_argument("--out", type=Path, metavar="PATH", help=what)
        one.add_argument("--json", type=Path, metavar="PATH", help="also write the dataset as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the study, print its table, write its dataset or report where the options say so.

    Exit code 1 if the study checks results and found some wrong (attribute ``failures``), 3 if it could measure
    nothing (attribute ``undecided``), else 0.
    """
    from dsa_crosscheck.compare.studies.output import write_json, write_netcdf

    study: Study = args.study
    folder = args.out if study.pages is not None and args.out is not None and args.out.suffix != ".nc" else None
    _check_targets(args, folder)
    dataset = study.run(args)
    print(study.render(dataset))
    if folder is not None:
        from dsa_crosscheck.compare.reports.write import write_report

        write_report(folder, dataset, study.page(dataset), study.replicates)
        print(f"\nreport: {folder / 'index.html'}")
    elif args.out is not None:
        write_netcdf(args.out, dataset)
    if args.page:
        from dsa_crosscheck.compare.reports.write import write_page

        page = study.page(dataset)
        for path in args.page:
            write_page(path, page)
    if args.json is not None:
        write_json(args.json, dataset)
    if dataset.attrs.get("failures"):
        return 1
    return 3 if dataset.attrs.get("undecided") else 0


def _check_targets(args: argparse.Namespace, folder: Path | None) -> None:
    """A study takes minutes: what can't be written in the end is refused before."""
    from dsa_crosscheck.compare.reports.extra import need

    files = [("page", path) for path in args.page] + [("json", args.json)] + [("out", args.out if not folder else None)]
    for option, path in files:
        check_target(f"--{option}", path)
    for path in args.page:
        if path.suffix not in (".html", ".md"):
            raise ValueError(f"`--page` should end in .html or .md, got {path}")
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"`--out` should be a folder, or a file that ends in .nc, got the file {folder}")
    if folder is not None or args.page:
        for package in ("jinja2", "matplotlib"):
            need(package)

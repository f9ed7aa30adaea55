"""``dsa-crosscheck report``: pages of studies that were measured before."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command and its three subcommands."""
    parser = commands.add_parser("report", help="render, merge or compare the datasets of studies")
    verbs = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    what = "the page of a study's dataset"
    render = verbs.add_parser("render", help=what, description=what)
    render.add_argument("dataset", type=Path, metavar="DATASET", help="a dataset.nc, or the folder of a report")
    render.set_defaults(run=run_render)
    what = "several runs of one study as one: other seeds, families or contexts"
    merge = verbs.add_parser("merge", help=what, description=what)
    merge.add_argument("datasets", type=Path, nargs="+", metavar="DATASET", help="datasets or folders of reports")
    merge.set_defaults(run=run_merge)
    what = "two runs of one study side by side, significant changes first"
    diff = verbs.add_parser("diff", help=what, description=what)
    diff.add_argument("before", type=Path, metavar="BEFORE", help="a dataset or the folder of a report")
    diff.add_argument("after", type=Path, metavar="AFTER", help="another of the same study")
    diff.set_defaults(run=run_diff)
    for verb, required in ((render, True), (merge, True), (diff, False)):
        text = "folder to write into" + ("" if required else " (default: only print Markdown)")
        verb.add_argument("--out", type=Path, metavar="DIR", required=required, help=text)


def run_render(args: argparse.Namespace) -> int:
    """Write the report of a dataset."""
    return _write(args.out, _load(args.dataset))


def run_merge(args: argparse.Namespace) -> int:
    """Write the report of several datasets' union."""
    from dsa_crosscheck.compare.reports.merge import merge
    from dsa_crosscheck.compare.studies.table import study_named

    datasets = [_load(path) for path in args.datasets]
    return _write(args.out, merge(datasets, study_named(datasets[0].attrs["study"]).summarise))


def run_diff(args: argparse.Namespace) -> int:
    """Print the changes as Markdown, or write them as HTML and Markdown."""
    from dsa_crosscheck.compare.files import write_text
    from dsa_crosscheck.compare.reports.difference import changes, difference_page
    from dsa_crosscheck.compare.reports.html import html_of
    from dsa_crosscheck.compare.reports.markdown import markdown_of
    from dsa_crosscheck.compare.studies.table import study_named

    before, after = _load(args.before), _load(args.after)
    found = changes(before, after, study_named(before.attrs["study"]).measures)
    page = difference_page(before, after, found, (str(args.before), str(args.after)))
    if args.out is None:
        print(markdown_of(page))
        return 0
    _check_folder(args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    write_text(args.out / "index.html", html_of(page))
    write_text(args.out / "report.md", markdown_of(page))
    print(f"report: {args.out / 'index.html'}")
    return 0


def _write(folder: Path, dataset: xr.Dataset) -> int:
    from dsa_crosscheck.compare.reports.write import write_report
    from dsa_crosscheck.compare.studies.table import study_named

    _check_folder(folder)
    study = study_named(dataset.attrs["study"])
    write_report(folder, dataset, study.page(dataset), study.replicates)
    print(f"report: {folder / 'index.html'}")
    return 0


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`--out` should be a folder, got the file {folder}")


def _load(path: Path) -> xr.Dataset:
    """The dataset at ``path``, or in the report's folder; ``ValueError`` when it is no study's."""
    import xarray as xr

    file = path / "dataset.nc" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"`DATASET` should be a netCDF file or the folder of a report, got {path}")
    try:
        dataset = xr.load_dataset(file, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise ValueError(f"`DATASET` should be a netCDF file of a study, but {file} cannot be read: {error}") from error
    if "study" not in dataset.attrs:
        raise ValueError(f"`DATASET` should be a netCDF file of a study, got {file} without the attribute 'study'")
    return dataset

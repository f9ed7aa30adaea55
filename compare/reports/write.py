"""Writing a report: dataset, records, page and Markdown in one folder."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.reports.html import html_of
from dsa_crosscheck.compare.reports.markdown import markdown_of
from dsa_crosscheck.compare.reports.page import Page
from dsa_crosscheck.compare.reports.records import records_of
from dsa_crosscheck.compare.studies.output import write_netcdf

FILES = ("dataset.nc", "records.jsonl", "index.html", "report.md")


def write_report(folder: Path, dataset: xr.Dataset, page: Page, replicates: tuple[str, ...]) -> None:
    """Write ``FILES`` into ``folder``, made when it is not there; each file is replaced whole."""
    texts = {
        "records.jsonl": "".join(line + "\n" for line in records_of(dataset, replicates)),
        "index.html": html_of(page),
        "report.md": markdown_of(page),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_netcdf(folder / "dataset.nc", dataset)
    for name, text in texts.items():
        write_text(folder / name, text)


def write_page(path: Path, page: Page) -> None:
    """Write ``page`` alone, as HTML or, where ``path`` ends in .md, as Markdown; whole or not at all."""
    write_text(path, markdown_of(page) if path.suffix == ".md" else html_of(page))

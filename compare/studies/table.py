"""The studies by name. Importing this imports neither JAX nor torch: a study's module is imported to run it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dsa_crosscheck.compare.studies.replay import replay_command

if TYPE_CHECKING:
    import xarray as xr

    from dsa_crosscheck.compare.reports.difference import Measure
    from dsa_crosscheck.compare.reports.page import Page


@dataclass(frozen=True)
class Study:
    """One study: ``module`` has ``run(args) -> xarray.Dataset`` and ``render(dataset) -> str``.

    ``what``: one line of help; ``options`` declares the study's own options. ``pages``, if the study has
    reports: a module with ``page(dataset) -> Page``, ``summarise(dataset) -> xarray.Dataset`` (summaries
    over replicates made anew), ``REPLICATES`` (dimensions whose values stay out of the records) and
    ``MEASURES`` (what two runs are compared by).
    """

    name: str
    what: str
    module: str
    options: Callable[[argparse.ArgumentParser], None]
    pages: str | None = None

    def run(self, args: argparse.Namespace) -> xr.Dataset:
        """Measure; the dataset's attributes name the study and the command that repeats it.

        ``ValueError`` names an option that can't be used.
        """
        dataset: xr.Dataset = import_module(self.module).run(args)
        dataset.attrs = {
            "study": self.name,
            "command": replay_command(self.name, self.options, args),
            **dataset.attrs,
        }
        return dataset

    def page(self, dataset: xr.Dataset) -> Page:
        """The dataset as a report; ``ValueError`` when the study has none."""
        page: Page = self._pages().page(dataset)
        return page

    def summarise(self, dataset: xr.Dataset) -> xr.Dataset:
        """``dataset`` with its summaries over replicates."""
        summarised: xr.Dataset = self._pages().summarise(dataset)
        return summarised

    @property
    def replicates(self) -> tuple[str, ...]:
        """Dimensions over which the study repeats itself, such as seeds."""
        return tuple(self._pages().REPLICATES)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What two runs of the study are compared by."""
        return tuple(self._pages().MEASURES)

    def _pages(self) -> ModuleType:
        if self.pages is None:
            having = [study.name for study in STUDIES if study.pages is not None]
            raise ValueError(f"a report should be of one of the studies {having}, got {self.name!r}")
        return import_module(self.pages)

    def render(self, dataset: xr.Dataset) -> str:
        """The dataset as text of at most 100 columns."""
        text: str = import_module(self.module).render(dataset)
        return text


RESULTS = Path("docs/results")


def _ordering_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--case", default="gaussian", help="a generated case or captured-text (default: %(default)s)")
    option("--context", type=int, default=4096, metavar="TOKENS", help="raw tokens (default: %(default)s)")
    option("--rows", type=int, default=9, metavar="N", help="query rows (default: %(default)s)")
    option("--topk", type=int, metavar="K", help="keys to select (default: a quarter of the keys)")
    option("--seed", type=int, default=0, metavar="S", help="seed of the case and of the random order (default: 0)")


def _memory_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--context", type=int, default=22528, metavar="TOKENS", help="raw tokens (default: %(default)s)")
    option("--rows", type=int, default=6144, metavar="N", help="query rows scored at once (default: %(default)s)")
    option("--budget", metavar="BYTES", help="also the largest context and chunk of rows within it, such as 48GiB")
    what = "folder of figures recorded on a device, read if it exists (default: %(default)s)"
    option("--results", type=Path, default=RESULTS, metavar="DIR", help=what)


COST_ON_CPU: dict[str, Any] = {
    "family": "gaussian",
    "context": 8192,
    "rows": 8,
    "topk": None,
    "repeats": 5,
    "seed": 0,
    "results": RESULTS,
}
"""What an option of study ``cost`` that only a CPU has means when it is left out; parsed, that is None, so
that an option which is given on a GPU is told from one which is not. ``topk`` follows from the keys."""


def _cost_options(parser: argparse.ArgumentParser) -> None:
    option, value = parser.add_argument, COST_ON_CPU
    names = (
        "with commas; any of cuda, cuda-mma, deepgemm, sglang makes it the bench of a GPU, which also times unfused "
        "and torch (default: %(default)s)"
    )
    option("--candidate", default="emulated,unfused", metavar="NAMES", help=names)
    option("--record", type=Path, metavar="PATH", help="on a GPU: also write the record there after each case, as JSON")
    option("--commit", help="on a GPU: what is measured, recorded as given")
    option("--family", metavar="NAME", help=f"on a CPU: family of inputs (default: {value['family']})")
    option("--context", type=int, metavar="TOKENS", help=f"on a CPU: raw tokens (default: {value['context']})")
    option("--rows", type=int, metavar="N", help=f"on a CPU: query rows (default: {value['rows']})")
    topk = "on a CPU: keys to select (default: a quarter of the keys, at most 512)"
    option("--topk", type=int, metavar="K", help=topk)
    option("--repeats", type=int, metavar="N", help=f"on a CPU: timed passes of each (default: {value['repeats']})")
    option("--seed", type=int, metavar="S", help=f"on a CPU: seed of the inputs (default: {value['seed']})")
    what = f"on a CPU: folder of figures recorded on a device, read if it exists (default: {RESULTS})"
    option("--results", type=Path, metavar="DIR", help=what)


def _precision_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--families", nargs="+", metavar="NAME", help="families of inputs (default: all)")
    option("--case", nargs="+", default=[], type=Path, metavar="FILE", help="case files, each a family of its own")
    option("--contexts", nargs="+", type=int, metavar="TOKENS", help="raw tokens, ascending")
    option("--topk", nargs="+", type=int, default=[512, 1024, 2048], metavar="K", help="keys to select, ascending")
    option("--formats", nargs="+", metavar="NAME", help="storage formats (default: all)")
    option("--seeds", type=int, metavar="N", help="seeds of each generated family (default: 3, with --full 5)")
    option("--rows", type=int, metavar="N", help="query rows a seed (default: 16, with --full 32)")
    option("--full", action="store_true", help="contexts of 2K to 1M tokens, and shares of the loss in every cell")
    _sweep_options(parser)


def _needle_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    families = ["gaussian", "outlier"]
    option("--families", nargs="+", default=families, metavar="NAME", help="haystacks (default: gaussian outlier)")
    option("--contexts", nargs="+", type=int, metavar="TOKENS", help="raw tokens, ascending (default: 338 to 22,528)")
    option("--topk", nargs="+", type=int, default=[64, 512, 2048], metavar="K", help="keys to select, ascending")
    option("--formats", nargs="+", metavar="NAME", help="storage formats, the finest first (default: all)")
    option("--hadamard", choices=("on", "off"), default="on", help="the transform (default: %(default)s)")
    option("--seeds", type=int, default=3, metavar="N", help="seeds of each haystack (default: %(default)s)")
    option("--rows", type=int, default=16, metavar="N", help="query rows a seed (default: %(default)s)")
    option("--full", action="store_true", help="contexts up to 1M tokens as well")
    _sweep_options(parser)


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--store", type=Path, metavar="DIR", help="keep finished cells here; the same command goes on where it was")
    option("--workers", type=int, default=1, metavar="N", help="processes on this machine (default: %(default)s)")
    option("--scheduler", metavar="ADDRESS", help="run on this dask.distributed cluster, which sees --store")


STUDIES = (
    Study(
        "precision",
        "what does each storage format of keys and queries cost in the selection, where, and why?",
        "dsa_crosscheck.compare.studies.precision",
        _precision_options,
        "dsa_crosscheck.compare.studies.precision_page",
    ),
    Study(
        "needle",
        "is a fact planted in a long context still selected, in each storage format?",
        "dsa_crosscheck.compare.studies.needle",
        _needle_options,
        "dsa_crosscheck.compare.studies.needle_page",
    ),
    Study(
        "ordering",
        "does the order of the elements in a stored vector matter, for each format and side?",
        "dsa_crosscheck.compare.studies.ordering",
        _ordering_options,
    ),
    Study(
        "memory",
        "what does each way to read the cache ask the allocator for, and what fits a budget?",
        "dsa_crosscheck.compare.studies.memory",
        _memory_options,
        "dsa_crosscheck.compare.studies.memory_page",
    ),
    Study(
        "cost",
        "what does each storage format cost in bytes and time, beside what it keeps of the selection?",
        "dsa_crosscheck.compare.studies.cost",
        _cost_options,
        "dsa_crosscheck.compare.studies.cost_page",
    ),
)


def study_named(name: object) -> Study:
    """The study called ``name``; ``ValueError`` lists the names otherwise."""
    for study in STUDIES:
        if study.name == name:
            return study
    raise ValueError(f"`study` should be one of {[study.name for study in STUDIES]}, got {name!r}")

"""The studies by name. Importing this imports neither JAX nor torch: a study's module is imported to run it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Study:
    """One study: ``module`` has ``run(args) -> xarray.Dataset`` and ``render(dataset) -> str``.

    ``what``: one line of help; ``options`` declares the study's own options.
    """

    name: str
    what: str
    module: str
    options: Callable[[argparse.ArgumentParser], None]

    def run(self, args: argparse.Namespace) -> xr.Dataset:
        """Measure; ``ValueError`` names an option that can't be used."""
        dataset: xr.Dataset = import_module(self.module).run(args)
        return dataset

    def render(self, dataset: xr.Dataset) -> str:
        """The dataset as text of at most 100 columns."""
        text: str = import_module(self.module).render(dataset)
        return text


def _ordering_options(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--case", default="gaussian", help="a generated case or captured-text (default: %(default)s)")
    option("--context", type=int, default=4096, metavar="TOKENS", help="raw tokens (default: %(default)s)")
    option("--rows", type=int, default=9, metavar="N", help="query rows (default: %(default)s)")
    option("--topk", type=int, metavar="K", help="keys to select (default: a quarter of the keys)")
    option("--seed", type=int, default=0, metavar="S", help="seed of the case and of the random order (default: 0)")


STUDIES = (
    Study(
        "ordering",
        "does the order of the elements in a stored vector matter, for each format and side?",
        "dsa_crosscheck.compare.studies.ordering",
        _ordering_options,
    ),
)

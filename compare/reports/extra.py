"""The optional packages of reports, imported when one is rendered."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def need(name: str) -> ModuleType:
    """The module ``name``; ``ValueError`` says which extra brings it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.split(".")[0]:
            raise
        raise ValueError(
            f"a report needs the package {error.name}: install dsa-crosscheck[report], or write the dataset alone "
            "with an `--out` that ends in .nc"
        ) from error

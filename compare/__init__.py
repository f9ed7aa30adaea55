"""The comparison engine. Importing it imports neither JAX nor torch until something is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa_crosscheck.compare.engine import crosscheck as crosscheck
    from dsa_crosscheck.compare.report import Report as Report
    from dsa_crosscheck.compare.verdict import Verdict as Verdict

__all__ = ["Report", "Verdict", "crosscheck"]

_HOME = {"crosscheck": "engine", "Report": "report", "Verdict": "verdict"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

"""Checks for the test suite of any kernel: importing this imports neither JAX nor torch until something is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa_crosscheck.compare.testing.case import Case as Case
    from dsa_crosscheck.compare.testing.failure import CrosscheckFailure as CrosscheckFailure
    from dsa_crosscheck.compare.testing.stages import assert_cache_bytes as assert_cache_bytes
    from dsa_crosscheck.compare.testing.stages import assert_scores as assert_scores
    from dsa_crosscheck.compare.testing.stages import assert_selection as assert_selection
    from dsa_crosscheck.compare.testing.whole import assert_crosscheck as assert_crosscheck

__all__ = ["Case", "CrosscheckFailure", "assert_cache_bytes", "assert_crosscheck", "assert_scores", "assert_selection"]

_HOME = {
    "Case": "case",
    "CrosscheckFailure": "failure",
    "assert_cache_bytes": "stages",
    "assert_crosscheck": "whole",
    "assert_scores": "stages",
    "assert_selection": "stages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)

"""Skips: which were asked for, and what becomes of the others."""

from __future__ import annotations

from typing import NoReturn

import pytest


class Skipped(pytest.skip.Exception):  # type: ignore[name-defined, misc]
    """A skip that the test's marker asked for."""


def skip_unsupported(reason: str) -> NoReturn:
    """Skip the running test, marked ``allow_unsupported``."""
    __tracebackhide__ = True
    raise Skipped(reason)


def asked_for(item: pytest.Item, call: pytest.CallInfo[None]) -> bool:
    """Whether a skipped test's skip was asked for: by a skip mark, or as ``skip_unsupported``."""
    if any(item.get_closest_marker(name) is not None for name in ("skip", "skipif")):
        return True
    return call.excinfo is not None and isinstance(call.excinfo.value, Skipped)

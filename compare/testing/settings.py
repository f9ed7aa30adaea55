"""What the running test asked for: set by the plug-in around each test, read by the assertions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

TIMEOUT = 600.0
"""Default seconds that an isolated comparison may take."""


@dataclass(frozen=True)
class Settings:
    """``replay``: the command that runs the test again, empty outside pytest. ``isolate``: compare in a
    process of its own; None = only candidates on a GPU. ``timeout``: seconds, of an isolated one.
    ``allow_vacuous``: inputs that could not have shown a fault are no failure. ``allow_unsupported``: a
    case that the candidate says it cannot run is skipped, and no failure."""

    replay: str = ""
    isolate: bool | None = None
    timeout: float = TIMEOUT
    allow_vacuous: bool = False
    allow_unsupported: bool = False


_ACTIVE: ContextVar[Settings] = ContextVar("dsa_crosscheck_settings", default=Settings())  # noqa: B039 (frozen)


def active() -> Settings:
    """The settings of the running test; the defaults outside pytest."""
    return _ACTIVE.get()


@contextmanager
def settings_of_a_test(settings: Settings) -> Iterator[None]:
    """``settings`` until the block ends."""
    token = _ACTIVE.set(settings)
    try:
        yield
    finally:
        _ACTIVE.reset(token)

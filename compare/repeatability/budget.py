"""A wall-clock limit on runs that repeat a candidate, so that a slow one is checked less, not for hours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

REPEATS = 20
"""Default number of repeats of a method."""

SECONDS = 3.0
"""Limit of each kind of run (repeats of one method, batches of one method)."""


class Budget:
    """Counts calls and their time. The first call is always allowed.

    ``calls``: how many were made; ``last``: seconds of the last one, which the first one, with its
    compilation, would overstate.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.last = 0.0
        self.calls = 0

    @property
    def open(self) -> bool:
        """Whether one more call like the last one ends within the limit."""
        return self.calls == 0 or self.spent + self.last <= self.seconds

    def time(self, run: Callable[[], T]) -> T:
        """The result of ``run()``, its time counted even when it raises."""
        start = time.perf_counter()
        try:
            return run()
        finally:
            self.last = time.perf_counter() - start
            self.spent += self.last
            self.calls += 1

    def shortfall(self, done: int, wanted: int, what: str) -> str:
        """Why fewer than ``wanted`` were done, as a sentence; empty when they were."""
        if done >= wanted:
            return ""
        return f"{done} of {wanted} {what}: a call takes {self.last:.2g} s and the limit is {self.seconds:g} s"

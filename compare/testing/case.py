"""A golden fixture as a test receives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from dsa_crosscheck.fixtures.golden.golden import Golden
    from dsa_crosscheck.reference.conventions import Conventions
    from dsa_crosscheck.reference.inputs import Inputs


class Case:
    """One fixture: its name, and what its file holds, found and read when first asked for.

    ``case["cache"]`` and the like are the stored arrays, read-only numpy; ``Golden`` lists their names
    and shapes. A name that the fixture does not have is a ``KeyError`` that lists them.
    """

    def __init__(self, name: str, locate: Callable[[], Path]) -> None:
        self.name = name
        self._locate = locate

    @property
    def golden(self) -> Golden:
        """The whole fixture."""
        return _load(self._locate())

    @property
    def inputs(self) -> Inputs:
        """The inputs."""
        return self.golden.inputs

    @property
    def conventions(self) -> Conventions:
        """What the fixture's stages were computed by."""
        return self.golden.conventions

    def __getitem__(self, array: str) -> np.ndarray:
        """One stored array."""
        held = self.golden.arrays
        if array not in held:
            raise KeyError(f"{self.name} has no array {array!r}; it has {', '.join(held)}")
        values = held[array].values.view()
        # Fixtures are shared by all tests of a session.
        values.flags.writeable = False
        return values

    def __repr__(self) -> str:
        return f"Case({self.name!r})"


@cache
def _load(path: Path) -> Golden:
    from dsa_crosscheck.fixtures.golden.golden import load_golden

    return load_golden(path)

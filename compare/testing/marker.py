"""The marker ``dsa``: what a test says about its cases."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MARKER = "dsa"
FIXTURE = "dsa_case"

DECLARATION = (
    f"{MARKER}(fixtures=(), presets=(), allow_vacuous=False, allow_unsupported=False): a cross-check of an indexer. "
    "fixtures, presets: names or patterns of those to run, as the options --dsa-fixtures and --dsa-presets; "
    "allow_vacuous: inputs that could not show a fault do not fail; allow_unsupported: cases that the "
    "candidate refuses to run are skipped."
)


@dataclass(frozen=True)
class Marker:
    """The arguments of all ``dsa`` markers of a test, the closest first."""

    fixtures: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    allow_vacuous: bool = False
    allow_unsupported: bool = False


def marker_of(node: pytest.Item) -> Marker:
    """The marker of a test; ``ValueError`` names an argument that the marker does not have."""
    given: dict[str, object] = {}
    for mark in node.iter_markers(MARKER):
        if mark.args:
            raise ValueError(f"`pytest.mark.{MARKER}(...)` should have arguments by name only, got {mark.args!r}")
        given = {**mark.kwargs, **given}
    values: dict[str, object] = {}
    known = {field.name: field for field in fields(Marker)}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"`pytest.mark.{MARKER}({name}=...)` should be one of {tuple(known)}")
        values[name] = _checked(name, value)
    return Marker(**values)  # type: ignore[arg-type]


def is_crosscheck(node: pytest.Item) -> bool:
    """Whether a test has the marker or takes the fixture ``dsa_case``."""
    return FIXTURE in getattr(node, "fixturenames", ()) or node.get_closest_marker(MARKER) is not None


def _checked(name: str, value: object) -> object:
    if name.startswith("allow_"):
        if not isinstance(value, bool):
            raise ValueError(f"`pytest.mark.{MARKER}({name}=...)` should be True or False, got {value!r}")
        return value
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(entry, str) for entry in names):
        raise ValueError(f"`pytest.mark.{MARKER}({name}=...)` should be a name or a list of names, got {value!r}")
    return tuple(names)

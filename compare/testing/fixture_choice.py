"""Which fixtures a test runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dsa_crosscheck.fixtures.golden.recipe import Recipe

T = TypeVar("T")
Locate = Callable[[], Path]

FULL = "full"
"""Last part of the name of a full-size fixture."""


def available(*, full: bool) -> dict[str, Locate]:
    """Where the fixtures lie, by name: the committed ones, and with ``full`` the full-size ones too.

    A full-size one that the cache does not hold yet is made when it is first asked for.
    """
    from dsa_crosscheck.fixtures.golden.manifest import SUFFIX
    from dsa_crosscheck.fixtures.golden.packaged import packaged_folder, packaged_names

    folder = packaged_folder()
    found: dict[str, Locate] = {name: partial(Path, folder, f"{name}{SUFFIX}") for name in packaged_names()}
    if full:
        from dsa_crosscheck.fixtures.golden.catalogue import LARGE_RECIPES

        found |= {f"{recipe.name}.{FULL}": partial(_large, recipe) for recipe in LARGE_RECIPES}
    return found


def chosen(
    fixtures: Mapping[str, T], patterns: Sequence[Sequence[str]], presets: Sequence[Sequence[str]]
) -> dict[str, T]:
    """Those that some pattern of each list in ``patterns`` matches, and some of each in ``presets``.

    An empty list is no restriction. ``ValueError`` when a pattern matches nothing at all, so that a
    misspelt one is not a test that never runs, or when nothing is left.
    """
    left = dict(fixtures)
    for what, lists, part in (("fixtures", patterns, str), ("presets", presets, preset_of)):
        known = sorted({part(name) for name in fixtures})
        for wanted in lists:
            for pattern in wanted:
                if not any(fnmatchcase(name, pattern) for name in known):
                    raise ValueError(f"`{what}` should match some of {', '.join(known)}; got {pattern!r}")
            if wanted:
                left = {name: it for name, it in left.items() if any(fnmatchcase(part(name), p) for p in wanted)}
    if not left:
        raise ValueError(f"`fixtures` and `presets` should leave a fixture, got {[*patterns]} and {[*presets]}")
    return left


def preset_of(name: str) -> str:
    """Fixtures are called preset.format.case."""
    return name.split(".")[0]


def _large(recipe: Recipe) -> Path:
    from dsa_crosscheck.compare.golden.large import large_folder, make_large

    return make_large([recipe], large_folder())[recipe.name]

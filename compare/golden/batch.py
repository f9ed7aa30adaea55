"""Making a folder of fixtures: one at a time, whole files only, and from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dsa_crosscheck.compare.golden.certify import float64_limits
from dsa_crosscheck.compare.golden.contents import Contents
from dsa_crosscheck.compare.golden.make import make_golden
from dsa_crosscheck.fixtures.golden.difference import differences
from dsa_crosscheck.fixtures.golden.golden import CONTENT_HASH, Golden, load_golden, save_golden
from dsa_crosscheck.fixtures.golden.hashing import content_hash
from dsa_crosscheck.fixtures.golden.manifest import MANIFEST, SUFFIX, entry_of, read_manifest, write_manifest
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.fixtures.netcdf import CaseFileError

Maker = Callable[[Recipe], Golden]


def make_set(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    regenerate: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    maker: Maker = make_golden,
) -> dict[str, str]:
    """Make ``recipes`` in ``folder`` and its manifest; returns what became of each, by name.

    A fixture that is there, whole, of the same recipe and in the manifest is ``kept``, so that a run
    that was stopped goes on. With ``regenerate`` everything is made again: what differs only as
    another machine's float64 may is ``unchanged``, file and hashes as they were, and the rest is
    ``rewritten``. Raises ``ValueError`` for a file that is there and is anything else without
    ``regenerate``, or whatever ``maker`` raises; what was made before stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = read_manifest(folder) if (folder / MANIFEST).exists() else {}
    outcome: dict[str, str] = {}
    for place, recipe in enumerate(recipes, start=1):
        progress(f"{place} of {len(recipes)}: {recipe.name}")
        path = folder / f"{recipe.name}{SUFFIX}"
        old = _load(path)
        if path.exists() and not regenerate:
            known = entries.get(recipe.name, {}).get(CONTENT_HASH)
            if old is None or old.attributes.get("recipe") != recipe.record() or known not in (None, _hash(old)):
                raise ValueError(
                    f"{str(path)!r} is there, and is not this recipe's fixture as made; `--regenerate` replaces it"
                )
            golden, outcome[recipe.name] = old, "kept"
        else:
            golden, outcome[recipe.name] = _renewed(old, maker(recipe))
            if outcome[recipe.name] != "unchanged":
                save_golden(path, golden)
        if entries.get(recipe.name) != entry_of(golden):
            entries[recipe.name] = entry_of(golden)
            write_manifest(folder, entries)
    return outcome


def _renewed(old: Golden | None, new: Golden) -> tuple[Golden, str]:
    """The fixture to keep, and what that makes of the file."""
    if old is None:
        return new, "made"
    limits = float64_limits(Contents(new.inputs, new.conventions))
    found = differences(old.arrays, new.arrays, limits)
    if found:
        return new, f"rewritten: {found[0].sentence}"
    if {**old.attributes, CONTENT_HASH: ""} == {**new.attributes, CONTENT_HASH: ""}:
        return old, "unchanged"
    return Golden(old.arrays, new.attributes), "rewritten: attributes only"


def _load(path: Path) -> Golden | None:
    """The fixture at ``path``, None when there is none or it is damaged."""
    try:
        return load_golden(path)
    except (FileNotFoundError, CaseFileError):
        return None


def _hash(golden: Golden) -> str:
    return content_hash(golden.arrays)

"""Full-size fixtures in a content-addressed cache: made once, found again by recipe, never half there.

``objects/<content hash>.nc`` are the fixtures; ``recipes/<recipe hash>.json`` says which of them a
recipe made. A run that was stopped goes on with the first recipe that has no object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.golden.make import make_golden
from dsa_crosscheck.cuda_impl.build import cache_dir
from dsa_crosscheck.fixtures.golden.golden import CONTENT_HASH, Golden, save_golden
from dsa_crosscheck.fixtures.golden.hashing import content_hash
from dsa_crosscheck.fixtures.golden.manifest import SUFFIX
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.fixtures.netcdf import FORMAT_VERSION


def large_folder() -> Path:
    """``fixtures`` in the project's cache folder."""
    return cache_dir() / "fixtures"


def make_large(
    recipes: Sequence[Recipe], folder: Path, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Path]:
    """The fixture file of every recipe, by name, made where the cache has none."""
    for part in ("objects", "recipes"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    found = {}
    for place, recipe in enumerate(recipes, start=1):
        path = _cached(recipe, folder)
        progress(f"{place} of {len(recipes)}: {recipe.name}{', cached' if path else ''}")
        found[recipe.name] = path or _store(make_golden(recipe), recipe, folder)
    return found


def _cached(recipe: Recipe, folder: Path) -> Path | None:
    link = _link(recipe, folder)
    if not link.is_file():
        return None
    path = _object(json.loads(link.read_text(encoding="utf-8"))[CONTENT_HASH], folder)
    return path if path.is_file() else None


def _store(golden: Golden, recipe: Recipe, folder: Path) -> Path:
    digest = content_hash(golden.arrays)
    path = _object(digest, folder)
    save_golden(path, golden)
    write_text(_link(recipe, folder), json.dumps({"name": recipe.name, CONTENT_HASH: digest}) + "\n")
    return path


def _object(digest: str, folder: Path) -> Path:
    return folder / "objects" / f"{digest}{SUFFIX}"


def _link(recipe: Recipe, folder: Path) -> Path:
    key = hashlib.sha256(f"{FORMAT_VERSION} {recipe.record()}".encode()).hexdigest()
    return folder / "recipes" / f"{key}.json"

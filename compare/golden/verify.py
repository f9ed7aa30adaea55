"""Whether a fixture is what its manifest says, and what the reference still computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsa_crosscheck.compare.golden.certify import float64_limits
from dsa_crosscheck.compare.golden.contents import Contents
from dsa_crosscheck.fixtures.golden.conventions_json import conventions_from_json
from dsa_crosscheck.fixtures.golden.difference import Difference, describe, differences, structural_difference
from dsa_crosscheck.fixtures.golden.golden import CONTENT_HASH, INPUT, Golden, read_golden
from dsa_crosscheck.fixtures.golden.hashing import array_hash, content_hash
from dsa_crosscheck.fixtures.golden.logical import check_storage
from dsa_crosscheck.fixtures.golden.manifest import Entry
from dsa_crosscheck.fixtures.golden.recipe import Recipe
from dsa_crosscheck.fixtures.netcdf import Attributes, CaseFileError, StoredArray

CANDIDATE = "candidate."
"""Prefix of the arrays that a candidate made, which nothing here can compute again."""


@dataclass(frozen=True)
class Verification:
    """``problems``: a sentence each, in the order of the arrays. ``arrays``: how many were looked at."""

    name: str
    problems: tuple[str, ...]
    arrays: int


def verify_fixture(path: Path, entry: Entry | None) -> Verification:
    """Check the fixture at ``path`` against its manifest ``entry``, and by computing it again.

    Without an entry the file's own attributes and hash stand for it. A difference from the entry's
    hash names the array; the place and the right value come from making the array again, inputs
    from the recipe and everything else from the inputs.
    """
    name = path.stem
    try:
        golden = read_golden(path)
        for array_name, array in golden.arrays.items():
            check_storage(array_name, array)
    except FileNotFoundError:
        return Verification(name, (f"{name}: the file is missing",), 0)
    except (CaseFileError, ValueError) as error:
        return Verification(name, (f"{name}: {error}",), 0)
    found = _problems(golden, entry)
    return Verification(name, tuple(f"{name}: {problem}" for problem in found), len(golden.arrays))


def _problems(golden: Golden, entry: Entry | None) -> list[str]:
    sound = content_hash(golden.arrays) == golden.attributes.get(CONTENT_HASH)
    if entry is None:
        changed = [] if sound else ["the arrays do not match the file's own content hash"]
        return changed + _recomputed(golden, golden.attributes)
    problems = _attributes(golden.attributes, entry["attributes"])
    structure, suspects = _against_entry(golden.arrays, entry)
    if structure:
        return problems + [difference.sentence for difference in structure]
    if suspects:
        return problems + _located(golden, entry, suspects)
    if problems:
        return problems
    if not sound or golden.attributes[CONTENT_HASH] != entry[CONTENT_HASH]:
        return ["content_sha256 of the file, of the manifest and of the arrays should be one hash"]
    return _recomputed(golden, entry["attributes"])


def _attributes(got: Attributes, expected: Attributes) -> list[str]:
    names = [name for name in (*expected, *(n for n in got if n not in expected)) if name != CONTENT_HASH]
    return [
        f"attribute {name}: should be {expected.get(name)!r}, got {got.get(name)!r}"
        for name in names
        if expected.get(name) != got.get(name)
    ]


def _against_entry(arrays: dict[str, StoredArray], entry: Entry) -> tuple[list[Difference], list[str]]:
    """Differences in what arrays there are and how they are made, and the arrays of another hash."""
    structure, suspects = [], []
    for name in [*entry["arrays"], *(name for name in arrays if name not in entry["arrays"])]:
        spec, array = entry["arrays"].get(name), arrays.get(name)
        if spec is None or array is None:
            words = {True: "present", False: "missing"}
            structure.append(Difference(name, "presence", words[spec is not None], words[array is not None]))
            continue
        difference = structural_difference(name, spec, describe(array))
        if difference is not None:
            structure.append(difference)
        elif array_hash(name, array) != spec["sha256"]:
            suspects.append(name)
    return structure, suspects


def _located(golden: Golden, entry: Entry, suspects: list[str]) -> list[str]:
    """A sentence for every suspect, with the place where it leaves what it should be."""
    recipe = entry["attributes"].get("recipe")
    conventions = conventions_from_json(entry["attributes"]["conventions"])
    sentences = []
    expected: dict[str, StoredArray] = {}
    if recipe is not None:
        expected = Contents(Recipe.from_record(recipe).build(), conventions).arrays()
    elif not any(name.startswith(INPUT) for name in suspects):
        expected = Contents(golden.inputs, conventions).arrays()
    for name in suspects:
        found = differences({name: expected[name]}, {name: golden.arrays[name]}) if name in expected else []
        sentences += [d.sentence for d in found] or [f"{name}: does not match its hash, and nothing says where"]
    return sentences


def _recomputed(golden: Golden, attributes: Attributes) -> list[str]:
    """What the reference computes now from the fixture's own inputs, against what it holds."""
    try:
        contents = Contents(golden.inputs, conventions_from_json(str(attributes["conventions"])))
    except ValueError as error:
        return [str(error)]
    own = {name: array for name, array in golden.arrays.items() if not name.startswith(CANDIDATE)}
    return [
        f"computed again, {difference.sentence}"
        for difference in differences(contents.arrays(), own, float64_limits(contents))
    ]

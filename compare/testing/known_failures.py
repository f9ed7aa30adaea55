"""A file of failures that are known: each is expected, and must be taken out when it is gone."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

TABLE = "known_failures"


@dataclass(frozen=True)
class KnownFailure:
    """``case``: a fixture's name (every test on it) or a test's node id. ``reason``: what is wrong;
    ``link``: where that is tracked."""

    case: str
    reason: str
    link: str


def read_known_failures(path: Path) -> tuple[KnownFailure, ...]:
    """The entries of a TOML file with one array ``known_failures`` of tables case, reason and link.

    Raises ``ValueError`` for a file that can't be read or is not that, an entry that lacks one of the
    three or has it empty, and two entries for one case.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"`--dsa-known-failures` should be a readable TOML file, got {path}: {error}") from error
    rows = document.get(TABLE)
    if set(document) != {TABLE} or not isinstance(rows, list):
        raise ValueError(f"{path} should hold one array `{TABLE}` and nothing else, got {sorted(document)}")
    entries = tuple(_entry(path, row) for row in rows)
    cases = [entry.case for entry in entries]
    twice = sorted({case for case in cases if cases.count(case) > 1})
    if twice:
        raise ValueError(f"{path} should list each case once, got several entries for {twice[0]!r}")
    return entries


def _entry(path: Path, row: object) -> KnownFailure:
    names = [field.name for field in fields(KnownFailure)]
    if not isinstance(row, dict) or set(row) != set(names):
        raise ValueError(f"{path}: an entry should have the keys {', '.join(names)}, got {row!r}")
    for name, value in row.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{path}: `{name}` should be a text that is not empty, got {value!r} in {row!r}")
    return KnownFailure(**row)

"""What the certificates are known to kill: a file beside the tests, so that a lost kill is noticed."""

from __future__ import annotations

import json
from pathlib import Path

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.mutants.gates import CERTIFICATE
from dsa_crosscheck.compare.mutants.matrix import Matrix

Kills = dict[str, dict[str, str]]
"""The stage that each killed mutant is pinned to, by preset and mutant."""


def kills(matrices: tuple[Matrix, ...]) -> Kills:
    """The mutants that the certificates kill, and where."""
    return {m.preset: {o.mutant: o.pinned for o in m.outcomes if o.killed[CERTIFICATE]} for m in matrices}


def lost_kills(matrix: Matrix, expected: Kills, only: str | None = None) -> tuple[str, ...]:
    """A sentence for each mutant of ``matrix.preset`` that used to die and no longer does.

    ``only``: the matrix has no other mutants than those whose name contains it. A mutant that no
    longer exists is lost too. ``ValueError`` when ``expected`` doesn't know the preset.
    """
    if matrix.preset not in expected:
        raise ValueError(f"`lost_kills(expected=...)` should hold {matrix.preset!r}, got {tuple(expected)}")
    now = kills((matrix,))[matrix.preset]
    known = {o.mutant for o in matrix.outcomes}
    sentences = []
    for mutant, stage in expected[matrix.preset].items():
        if mutant in now or (only is not None and only not in mutant):
            continue
        what = "survives" if mutant in known else "is no longer made"
        sentences.append(f"{matrix.preset}: {mutant} used to be killed at {stage} and now {what}")
    return tuple(sentences)


def read_kills(path: Path) -> Kills:
    """The file's content; ``ValueError`` when it isn't one that ``write_kills`` wrote."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"`--expected` should be a JSON file of kills, got {path}: {error}") from error
    mutants = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(m, dict) and all(isinstance(stage, str) for stage in m.values()) for m in mutants):
        raise ValueError(f"`--expected` should hold preset -> mutant -> stage, got {path}")
    return content


def write_kills(path: Path, matrices: tuple[Matrix, ...]) -> None:
    """Record what is killed now; presets that were not run keep what ``path`` says about them."""
    known = read_kills(path) if path.exists() else {}
    write_text(path, json.dumps(known | kills(matrices), indent=1) + "\n")

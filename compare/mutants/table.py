"""The mutant matrix as text."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table

from dsa_crosscheck.compare.mutants.gates import GATES
from dsa_crosscheck.compare.mutants.matrix import Matrix, Outcome

WIDTH = 120


def render(matrix: Matrix) -> str:
    """Gate x mutant, then a score line for each gate, then what is wrong, if anything."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("mutant", "case", *GATES, "pinned to", "verdict"):
        table.add_column(name, no_wrap=True)
    for outcome in matrix.outcomes:
        cells = [_cell(outcome, gate) for gate in GATES]
        table.add_row(outcome.mutant, outcome.case, *cells, outcome.pinned, outcome.verdict)
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    lines = [f"preset {matrix.preset}      faults in: {matrix.candidate}", ""]
    lines += [line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")]
    lines += [
        "",
        *(f"{gate:14} kills {dead} of {total} faults" for gate in GATES for dead, total in [matrix.score(gate)]),
    ]
    reasons: dict[str, list[str]] = {}
    for outcome in matrix.outcomes:
        if outcome.equivalent:
            reasons.setdefault(outcome.equivalent, []).append(outcome.mutant)
    lines += ["", "equivalent, not faults:"] if reasons else []
    lines += [f"  {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    lines += ["", *(f"PROBLEM: {problem}" for problem in matrix.problems)] if matrix.problems else []
    return "\n".join(lines)


def _cell(outcome: Outcome, gate: str) -> str:
    dead = outcome.killed[gate]
    if dead is None:
        return "-"
    if outcome.equivalent:
        return "killed" if dead else "same"
    return "killed" if dead else "PASSED"

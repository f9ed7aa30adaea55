"""A plain table of text cells, as the studies print it."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table

WIDTH = 100


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]], labels: int) -> list[str]:
    """Lines of at most 100 columns; the first ``labels`` columns are aligned left, the rest right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < labels else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    buffer = StringIO()
    Console(file=buffer, width=WIDTH, color_system=None, highlight=False).print(table)
    return [line.rstrip() for line in buffer.getvalue().rstrip("\n").split("\n")]

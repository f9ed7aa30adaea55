"""A report as data: what a page says, before it is HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """``svg``: inline SVG whose colours are the page's variables (``figures.svg_of``).

    ``caption`` says what is shown and what to see in it; ``description`` tells it to who can't see.
    """

    name: str
    caption: str
    description: str
    svg: str


@dataclass(frozen=True)
class Table:
    """``rows`` of text cells under ``columns``; the first ``labels`` columns name the row, the rest are numbers.

    ``ValueError`` for a row of another length than the header's.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"`Table(rows=...)` should have {len(self.columns)} cells a row, got {row}")


@dataclass(frozen=True)
class Page:
    """One report: the answer in a few sentences, figures, tables, method, and where it comes from.

    ``environment``: names and values of what it was measured with; ``command`` repeats it.
    """

    title: str
    question: str
    answer: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    method: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    command: str

"""The coverage table of docs/fixtures.md."""

from __future__ import annotations

import json
from pathlib import Path

from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.compare.golden.coverage import FAMILIES, Coverage
from dsa_crosscheck.fixtures.golden.golden import Golden

BEGIN = "<!-- coverage: begin -->"
END = "<!-- coverage: end -->"


def coverage_table(rows: list[Coverage], goldens: list[Golden]) -> str:
    """Markdown: a line a fixture, a column a family, how many of the family's mutants the fixture sees.

    The last line counts the mutants that at least one fixture sees, of all that any fixture has.
    """
    lines = ["| " + " | ".join(["fixture", "sizes", *FAMILIES]) + " |", "|" + "---|" * (len(FAMILIES) + 2)]
    for row, golden in zip(rows, goldens, strict=True):
        cells = [f"{len(row.seen[family])}/{len(row.judged[family])}" for family in FAMILIES]
        lines.append("| " + " | ".join([f"`{row.fixture}`", _sizes(golden), *cells]) + " |")
    together = []
    for family in FAMILIES:
        seen = {name for row in rows for name in row.seen[family]}
        judged = {name for row in rows for name in row.judged[family]}
        together.append(f"{len(seen)}/{len(judged)}")
    lines.append("| " + " | ".join(["**all together**", "", *together]) + " |")
    return "\n".join(lines)


def replace_table(page: Path, table: str) -> None:
    """Put ``table`` between the two marks of ``page``; ``ValueError`` when it does not have them once each."""
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"`--out` should be a page with {BEGIN!r} and {END!r}, got {str(page)!r}")
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    write_text(page, f"{head}{BEGIN}\n{table}\n{tail}")


def _sizes(golden: Golden) -> str:
    g, recipe = golden.geometry, json.loads(str(golden.attributes["recipe"]))
    return f"page {g.page_size}, ratio {g.compress_ratio}, next_n {recipe['next_n']}, dim {g.head_dim}, k {g.topk}"

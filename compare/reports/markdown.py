"""A page as Markdown for a pull request: the answer, then everything else folded away."""

from __future__ import annotations

from dsa_crosscheck.compare.reports.page import Page, Table


def markdown_of(page: Page) -> str:
    """GitHub Markdown. Figures are left to the HTML page; their captions say what they show."""
    lines = [f"### {page.title}", "", " ".join(page.answer), ""]
    for table in page.tables:
        lines += ["<details>", f"<summary>{_html(table.caption)}</summary>", "", *_table(table), "", "</details>", ""]
    lines += ["<details>", "<summary>Method and environment</summary>", ""]
    lines += [*(f"- {paragraph}" for paragraph in page.method), ""]
    lines += [*_table(Table("", ("", "version or value"), page.environment)), "", "</details>", ""]
    lines += ["```", page.command, "```", ""]
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    rule = ["---"] * table.labels + ["---:"] * (len(table.columns) - table.labels)
    return [_line(table.columns), _line(rule), *(_line(row) for row in table.rows)]


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")

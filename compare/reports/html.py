"""A page as one self-contained HTML file."""

from __future__ import annotations

from importlib import resources

from dsa_crosscheck.compare.reports.extra import need
from dsa_crosscheck.compare.reports.page import Page

TEMPLATE = "page.html.j2"


def html_of(page: Page) -> str:
    """HTML5 with inline style and SVG: no script, nothing fetched. Text is escaped, figures' SVG is not."""
    jinja2 = need("jinja2")
    source = resources.files("dsa_crosscheck.compare.reports").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    text: str = environment.from_string(source).render(page=page)
    return text

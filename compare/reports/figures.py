"""Figures as inline SVG that follows the page's colours, light or dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from dsa_crosscheck.compare.reports.extra import need

INK, MUTED, GRID, PAPER = "#0a0b0c", "#6a6b6c", "#cacbcc", "#fafbfc"
SERIES = ("#a10a01", "#a10a02", "#a10a03", "#a10a04", "#a10a05", "#a10a06")
"""Stand-ins that no plot uses by chance; each becomes a variable of the page's style sheet."""
MARKERS = ("o", "s", "D", "^", "v", "P")
"""One for each of ``SERIES``: no figure tells its series by colour alone."""

WIDTH = 4.6
"""Inches. So narrow that 9-point text can be read when a phone shrinks the figure to 330 pixels."""

_PAGE = Path(__file__).parent / "page.html.j2"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{i + 1})" for i, colour in enumerate(SERIES)},
}
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def svg_of(name: str, height: float, draw: Callable[[Any], None]) -> str:
    """Draw on a new figure ``WIDTH`` x ``height`` inches; SVG text without header, date or fixed size.

    Ids start with ``name``, so that figures of one page don't share any; the same drawing gives the same
    text.
    """
    matplotlib = need("matplotlib")
    figure_module = need("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = figure_module.Figure(figsize=(WIDTH, height))
        figure.patch.set_alpha(0.0)
        draw(figure)
        for axes in figure.axes:
            axes.patch.set_alpha(0.0)
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(buffer.getvalue(), name)


def standalone(svg: str) -> str:
    """``svg`` of a page as a file of its own: in the light theme's colours, on its paper.

    On a page the ink follows its theme; an image in other text can't, and must be legible on any ground.
    """
    style = re.search(r":root\s*\{[^}]*\}", _PAGE.read_text(encoding="utf-8"))
    assert style is not None, "the page's template begins with its light theme"
    colours = dict(re.findall(r"(--[\w-]+): (#\w+)", style[0]))
    for colour, value in colours.items():
        svg = svg.replace(f"var({colour})", value)
    return svg.replace("<svg ", f'<svg style="background: {colours["--paper"]}" ', 1)


def error_bars(value: np.ndarray | float, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Lengths of an interval's bars below and above ``value``, [2, n]: rounding may not make one negative."""
    value, low, high = np.broadcast_arrays(np.atleast_1d(value), low, high)
    return np.maximum([value - low, high - value], 0.0)


def _inline(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    # A hundredth of a point is less than any screen shows.
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    return re.sub(r"\n\s*", "\n", svg)

"""Cuts the figures that docs/story.md shows out of the studies' pages, as SVG files beside them."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = {"needle-lost": ("needle.html", 0), "needle-margin": ("needle.html", 2), "memory": ("memory.html", 0)}

for name, (page, number) in FIGURES.items():
    text = (HERE / page).read_text(encoding="utf-8")
    figure = re.findall(r"<svg.*?</svg>", text, re.DOTALL)[number]
    # On a page the ink follows its theme; alone, a figure brings the light theme's colours and paper.
    colours = dict(re.findall(r"(--\w+): (#\w+)", re.findall(r":root\s*\{[^}]*\}", text)[0]))
    for colour, value in colours.items():
        figure = figure.replace(f"var({colour})", value)
    paper = figure.replace("<svg ", f'<svg style="background: {colours["--paper"]}" ', 1)
    (HERE / f"{name}.svg").write_text(paper + "\n", encoding="utf-8")

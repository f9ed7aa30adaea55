"""Cuts the figures that docs/story.md shows out of the studies' pages, as SVG files beside them."""

from __future__ import annotations

import re
from pathlib import Path

from dsa_crosscheck.compare.reports.figures import standalone

HERE = Path(__file__).parent
FIGURES = {"needle-lost": ("needle.html", 0), "needle-margin": ("needle.html", 2), "memory": ("memory.html", 0)}

for name, (page, number) in FIGURES.items():
    text = (HERE / page).read_text(encoding="utf-8")
    figure = re.findall(r"<svg.*?</svg>", text, re.DOTALL)[number]
    (HERE / f"{name}.svg").write_text(standalone(figure) + "\n", encoding="utf-8")

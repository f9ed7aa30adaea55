"""Draws the record h200-kernels.json as h200-kernels.svg beside it."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from dsa_crosscheck.compare.device.figure import kernels_figure
from dsa_crosscheck.compare.reports.figures import standalone

HERE = Path(__file__).parent

figure = kernels_figure(json.loads((HERE / "h200-kernels.json").read_text(encoding="utf-8")))
start, rest = standalone(figure.svg).split(">", 1)
description = f"{start}>\n<desc>{escape(figure.description)}</desc>{rest}"
(HERE / "h200-kernels.svg").write_text(description + "\n", encoding="utf-8")

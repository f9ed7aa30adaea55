"""A page in headless Chromium: what it logs, how wide it becomes, how it looks."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

BINARY = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

PROBE = """
<script>
const wide = [...document.querySelectorAll("body *")].filter(
  (e) => !e.closest(".scroll table") && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
);
const style = getComputedStyle(document.body);
const found = {
  width: document.documentElement.scrollWidth,
  viewport: document.documentElement.clientWidth,
  wide: wide.map((e) => e.tagName + "." + e.getAttribute("class")).slice(0, 5),
  text: Math.min(...[...document.querySelectorAll("svg text")].map((e) => e.getBoundingClientRect().height)),
  background: style.backgroundColor,
  color: style.color,
};
parent.document.documentElement.setAttribute("data-probe", JSON.stringify(found));
</script>
"""


@dataclass(frozen=True)
class Seen:
    """``console``: messages; ``width`` of the content in a ``viewport``, pixels; ``wide``: elements that stick out;
    ``text``: height of the smallest text in a figure; colours as the browser computes them."""

    console: tuple[str, ...]
    width: int
    viewport: int
    wide: tuple[str, ...]
    text: float | None
    background: str
    color: str


def look(page: Path, folder: Path, width: int, *, dark: bool = False) -> Seen:
    """Open ``page`` with a script that measures it, in a frame ``width`` pixels wide."""
    text = page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>")
    framed = _framed(folder, text, width)
    done = _run(folder, framed, "--dump-dom", "--enable-logging=stderr", dark=dark)
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert probe is not None, done.stderr
    found = json.loads(probe.group(1).replace("&quot;", '"'))
    console = tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Seen(console, **{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})


def screenshot(page: Path, target: Path, width: int, height: int) -> None:
    """A picture of ``page`` as PNG, ``width`` x ``height`` pixels."""
    framed = _framed(target.parent, page.read_text(encoding="utf-8"), width, height)
    _run(target.parent, framed, f"--screenshot={target}", f"--window-size={width},{height}")


def _framed(folder: Path, text: str, width: int, height: int = 900) -> Path:
    """A file with ``text`` in a frame: a window, unlike a frame, cannot be narrower than 500 pixels."""
    frame = folder / "framed.html"
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe style="border:0" width="{width}" height="{height}" '
        f'srcdoc="{html.escape(text)}"></iframe>',
        encoding="utf-8",
    )
    return frame


def _run(folder: Path, page: Path, *options: str, dark: bool = False) -> subprocess.CompletedProcess[str]:
    assert BINARY is not None
    command = [
        BINARY,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

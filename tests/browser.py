"""A page in headless Chromium: what it logs, how wide it becomes, how it looks."""

from __future__ import annotations

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
document.documentElement.setAttribute("data-probe", JSON.stringify(found));
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
    """Open a copy of ``page`` with a script that measures it, ``width`` pixels wide."""
    copy = folder / "probed.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    done = _run(folder, width, copy, "--dump-dom", "--enable-logging=stderr", dark=dark)
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert probe is not None, done.stderr
    found = json.loads(probe.group(1).replace("&quot;", '"'))
    console = tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Seen(console, **{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})


def screenshot(page: Path, target: Path, width: int, height: int) -> None:
    """A picture of ``page`` as PNG."""
    _run(target.parent, width, page, f"--screenshot={target}", height=height)


def _run(
    folder: Path, width: int, page: Path, *options: str, dark: bool = False, height: int = 900
) -> subprocess.CompletedProcess[str]:
    assert BINARY is not None
    command = [
        BINARY,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder}/profile",
        f"--window-size={width},{height}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

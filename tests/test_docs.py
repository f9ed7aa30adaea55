"""Transcripts in the documentation are what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dsa_crosscheck.compare.cli import main

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
TELLING = ("FIRST FAULT", "CAUSE", "WHERE", "verdict")


def transcripts(page: Path) -> list[tuple[str, list[str]]]:
    """(command, printed lines) of every block that starts with a command of ours."""
    found = []
    for block in re.findall(r"```\n\$ dsa-crosscheck (.*?)```", page.read_text(), re.DOTALL):
        command, _, printed = block.replace("\\\n", " ").partition("\n")
        found.append((command, [line for line in printed.splitlines() if line != "..."]))
    return found


PAGES = [ROOT / "README.md", ROOT / "docs" / "selections-differ.md"]
CASES = [pytest.param(*t, id=f"{page.stem}-{t[0].split()[2]}") for page in PAGES for t in transcripts(page)]


def test_every_verdict_that_can_be_shown_has_a_transcript() -> None:
    shown = " ".join(line for case in CASES for line in case.values[1])
    for verdict in ("WITHIN_BOUND", "VIOLATION", "SCALE_ONLY", "MALFORMED", "REFUSED"):
        assert f"verdict: {verdict} - " in shown


@pytest.mark.parametrize(("command", "printed"), CASES)
def test_transcript(
    command: str, printed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLES)
    main(shlex.split(command))
    output = capsys.readouterr().out.splitlines()
    told = [line for line in printed if line.startswith(TELLING)]
    assert told
    for line in told:
        assert line in output
    stages = {line.split("  ")[0] for line in printed if "IDENTICAL" in line or "VIOLATION" in line}
    assert stages <= {line.split("  ")[0] for line in output}

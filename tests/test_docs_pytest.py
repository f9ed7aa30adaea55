"""The page on the plug-in: its files are written and run, and its transcript is what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from kernel_repository import run

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parent.parent / "docs" / "pytest.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^\*\*(\S+)\*\*\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
NUMBER = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")
TIME = re.compile(r" in [\d.]+s\b")


@pytest.fixture
def stranger(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty folder with the files of the page, on somebody's own machine: pytest prints more where it sees CI."""
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        pytester.path.joinpath(name).write_text(text)
    return pytester


def masked(lines: list[str]) -> list[str]:
    """Without numbers, whose last digits are the machine's, and without blanks."""
    return [" ".join(NUMBER.sub("#", TIME.sub("", line)).split()) for line in lines]


def test_the_page_holds_the_files() -> None:
    assert set(FILES) == {"kernel.py", "test_kernel.py", "test_stages.py", "known.toml"}
    statements = [line for line in FILES["test_kernel.py"].splitlines() if line]
    assert len(statements) == 9


def test_transcript(stranger: pytest.Pytester) -> None:
    (transcript,) = re.findall(r"^```console\n\$ (.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    command, *expected = transcript.splitlines()
    program, *options = shlex.split(command.removeprefix("python -m "))
    assert program == "pytest"
    done = run(stranger, *options)
    done.assert_outcomes(failed=1)
    assert masked(done.outlines[-len(expected) :]) == masked(expected)
    assert any("cause:       matches if rope_pairing is half-split instead of interleaved" in line for line in expected)


def test_the_repair_that_the_page_gives(stranger: pytest.Pytester) -> None:
    (repair,) = re.findall(r"^```python\n( .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    wrong = re.compile(r"^    a, b = x\[.*?^    x = hadamard\(.*?$\n", re.MULTILINE | re.DOTALL)
    text, count = wrong.subn(lambda found: repair, FILES["kernel.py"])
    assert count == 1
    stranger.path.joinpath("kernel.py").write_text(text)
    which = ("--dsa-presets", "sglang-v4-fp8", "--dsa-fixtures", "*.gaussian,*.outlier")
    run(stranger, *which, "test_kernel.py").assert_outcomes(passed=2)


def test_stages_and_known_failures(stranger: pytest.Pytester) -> None:
    done = run(stranger, "--dsa-known-failures", "known.toml")
    done.assert_outcomes(passed=2, failed=1, xfailed=1)
    done.stdout.fnmatch_lines(["*CrosscheckFailure: cache: VIOLATION*"])
    done.stdout.re_match_lines(["E +cause: +matches if rope_pairing is half-split instead of interleaved"])

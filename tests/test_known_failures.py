"""The file of known failures: what it may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsa_crosscheck.compare.testing.known_failures import KnownFailure, read_known_failures

ROW = '{ case = "a.b.c", reason = "wrong", link = "https://example.org" }'


def written(folder: Path, text: str) -> Path:
    path = folder / "known.toml"
    path.write_text(text)
    return path


def test_an_entry_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, f"known_failures = [\n  {ROW},\n]\n")
    assert read_known_failures(path) == (KnownFailure("a.b.c", "wrong", "https://example.org"),)
    assert read_known_failures(written(tmp_path, "known_failures = []")) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("known_failures = [", "should be a readable TOML file"),
        ("", "should hold one array `known_failures`"),
        ("known_failures = 3", "should hold one array `known_failures`"),
        ("known_failures = []\nknown = 1", "should hold one array `known_failures`"),
        ('known_failures = ["a"]', "an entry should have the keys case, reason, link"),
        ('known_failures = [{ case = "a", reason = "b" }]', "an entry should have the keys case, reason, link"),
        (f"known_failures = [{ROW.replace('wrong', ' ')}]", "`reason` should be a text that is not empty"),
        (f"known_failures = [{ROW.replace('https://example.org', '')}]", "`link` should be a text that is not empty"),
        (f"known_failures = [{ROW}, {ROW}]", "should list each case once"),
    ],
)
def test_anything_else_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_known_failures(written(tmp_path, text))

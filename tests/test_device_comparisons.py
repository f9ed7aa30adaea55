"""Cross-checks kept as a record: contexts and candidates that are none, and what makes the command fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsa_crosscheck.compare.device import comparisons, record


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate `cuda` stands for the emulated kernels here."""
    monkeypatch.setattr(comparisons, "CASES", {512: ("gaussian", "plateau")})
    monkeypatch.setattr(comparisons, "PRESETS", {"cuda": ("sglang-v4-fp8",), "deepgemm": ("deepgemm-fp8",)})
    real = comparisons._report

    def report(candidate: str, *rest: Any) -> Any:
        return real("emulated" if candidate == "cuda" else candidate, *rest)

    monkeypatch.setattr(comparisons, "_report", report)


@pytest.mark.usefixtures("on_cpu")
def test_records_say_what_each_stage_differed_by() -> None:
    records = comparisons.measure(["cuda", "deepgemm"], (512,))
    ours = [one for one in records if one["candidate"] == "cuda"]
    assert [one["case"] for one in ours] == ["gaussian", "plateau"]
    assert all(one["verdict"] == "WITHIN_BOUND" and one["stages"]["scores"]["factor"] < 1 for one in ours)
    assert all("left_out" in one for one in records if one["candidate"] == "deepgemm")
    assert not comparisons.failed(records)
    text = comparisons.render(records)
    assert "plateau" in text
    assert "left out" in text


@pytest.mark.usefixtures("on_cpu")
def test_a_violation_of_our_own_fails_and_of_a_peer_does_not() -> None:
    [first, *_] = comparisons.measure(["cuda"], (512,))
    assert comparisons.failed([first | {"verdict": "VIOLATION"}])
    assert comparisons.failed([{"candidate": "cuda", "left_out": "no GPU"}])
    assert not comparisons.failed([first | {"verdict": "VIOLATION", "candidate": "sglang"}])


@pytest.mark.parametrize(("candidates", "contexts"), [(["unfused"], (512,)), (["cuda"], (513,))])
def test_unknown_names_are_refused(candidates: list[str], contexts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="should name some of"):
        comparisons.measure(candidates, contexts)


@pytest.mark.usefixtures("on_cpu")
def test_a_stopped_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    first = comparisons.measure(["cuda"], (512,), keep=lambda records: kept.append(len(records)))
    assert kept == [1, 2]
    made: list[str] = []
    real = comparisons._report
    monkeypatch.setattr(comparisons, "_report", lambda *what: made.append(what[2]) or real(*what))
    assert comparisons.measure(["cuda"], (512,), done=first[:1]) == first
    assert made == ["plateau"]
    other = first[1] | {"candidate": "sglang"}
    missing = {name: first[0][name] for name in comparisons.WHAT} | {"left_out": "no GPU"}
    found = comparisons.measure(["cuda"], (512,), done=[other, missing])
    assert sorted(one["candidate"] for one in found) == ["cuda", "cuda", "sglang"]
    assert all("verdict" in one for one in found)


@pytest.mark.parametrize(("commit", "resumes"), [("abc", True), ("abd", False), ("", False)])
def test_only_a_record_of_the_same_commit_is_taken_up(tmp_path: Path, commit: str, resumes: bool) -> None:
    top = {"device": "one", "commit": commit, "date": "2026-01-02"}
    path = tmp_path / "record.json"
    assert record.resumed(path, top, "compare") == []
    path.write_text(json.dumps({"device": "one", "commit": commit and "abc", "date": "2026-01-01", "compare": [{}]}))
    assert record.resumed(path, top, "compare") == ([{}] if resumes else [])
    path.write_text('{"device":')
    assert record.resumed(path, top, "compare") == []

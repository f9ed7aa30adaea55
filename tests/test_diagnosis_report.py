"""A failed report says why at its top, in its JSON and in its dataset; ``explain`` lists what was tried."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import candidates
import pytest
import torch

from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.diagnosis.explanation import EXPLAINS, Residual, Trial
from dsa_crosscheck.compare.diagnosis.text import explanation_text
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.reference.presets import PRESETS

FP8 = PRESETS["sglang-v4-fp8"].conventions
INPUTS = candidates.case()
NO_RELU = ReferenceCandidate(FP8.with_field("relu", False))
RIGHT = ReferenceCandidate(FP8)


def report(candidate: object) -> Report:
    return crosscheck(INPUTS, candidate, preset=FP8, repeat=0)


def test_three_lines_at_the_top() -> None:
    lines = str(report(NO_RELU)).split("\n")
    top = " ".join(" ".join(lines[:12]).split())
    assert re.search(r"FIRST FAULT: scores at row \d+ key \d+ .* operand: scorer", top)
    assert "CAUSE: matches if relu is False instead of True" in top
    assert "WHERE: " in top
    assert max(map(len, lines)) <= 100


def test_what_was_tried_is_told_by_what_it_leaves() -> None:
    left = {None: None} | {n: Residual(n, n, None) for n in (0, 1, 2, 9)}
    tried = (
        Trial("store_keys", "no such bytes", "bytes do not fit", left[None]),
        Trial("store_keys", "leaves 9", "does not", left[9]),
        Trial("store_keys", "leaves 2", "does not", left[2]),
        Trial("store_keys", "a named fault", EXPLAINS, left[None]),
        Trial("score", "leaves 1", "does not", left[1]),
        Trial("score", "leaves nothing", EXPLAINS, left[0]),
    )
    found = report(NO_RELU)
    assert found.explanation is not None
    text = explanation_text(replace(found, explanation=replace(found.explanation, trials=tried)))
    names = [line.split(": ")[1] for line in text.partition("tried (")[2].split("\n")[1:]]
    assert names == ["a named fault", "leaves 2", "leaves 9", "no such bytes", "leaves nothing", "leaves 1"]


def test_json_and_dataset_carry_the_explanation() -> None:
    found = report(NO_RELU)
    record = json.loads(found.to_json())["explanation"]
    assert record["first_stage"] == "scores"
    assert record["causes"][0]["change"] == [["relu", "True", "False"]]
    assert record["causes"][0]["residual_after"]["unexplained"] == 0
    assert record["cause"] == found.explanation.cause
    assert {graft["scorer"] for graft in record["grafts"]} == {"reference", "candidate"}
    attrs = found.to_dataset().attrs
    assert attrs["explanation_operand"].startswith("scorer")
    assert attrs["explanation_cause"] == record["cause"]


@pytest.mark.parametrize(
    ("alter", "where"),
    [
        (lambda base, *args: 1 / 0, "nothing came back that could be compared"),
        (lambda base, *args: base.score(*args) + 9.0, "every element is wrong"),
        (lambda base, *args: base.score(*args)[0], "nothing came back that could be compared"),
    ],
)
def test_errors_that_leave_nothing_out(alter: Callable[..., Any], where: str) -> None:
    found = report(candidates.Altered(RIGHT, score=alter))
    assert found.explanation.where == where
    assert f"WHERE: {where}" in str(found)


def test_a_pass_has_none_of_it() -> None:
    found = report(RIGHT)
    assert found.explanation is None
    assert "CAUSE" not in str(found)
    assert json.loads(found.to_json())["explanation"] is None
    assert "explanation_cause" not in found.to_dataset().attrs


def test_one_wrong_element_is_where_it_is() -> None:
    def score(base: ReferenceCandidate, *args: torch.Tensor) -> torch.Tensor:
        scores = base.score(*args)
        scores[int(args[-1].argmax()), 5] += 1.0
        return scores

    found = report(candidates.Altered(RIGHT, score=score))
    assert re.fullmatch(r"the only error is at row \d+ key 5 \(\d+:5\)", found.explanation.where)
    assert found.explanation.cause == "unexplained"


def test_a_fused_candidate_is_explained_from_its_selection() -> None:
    found = report(FusedReference(FP8.with_field("causal", "own-group")))
    assert found.explanation.causes[0].change == (("causal", "finished-groups", "own-group"),)
    assert found.explanation.grafts == ()


def test_a_candidate_that_raises_is_explained_by_what_it_expects() -> None:
    found = report(ReferenceCandidate(FP8.with_field("key.format", "bf16")))
    assert found.explanation.cause.startswith("works on input for which key.format is bf16")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of a small comparison with a candidate whose keys miss the transform."""
    (tmp_path / "untransformed.py").write_text(
        "from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate\n"
        "from dsa_crosscheck.reference.presets import PRESETS\n"
        "c = PRESETS['sglang-v4-fp8'].conventions\n"
        "wrong, right = ReferenceCandidate(c.with_field('hadamard_key', False)), ReferenceCandidate(c)\n"
    )
    monkeypatch.chdir(tmp_path)
    return ["--preset", "sglang-v4-fp8", "--case", "gaussian", "--context", "512", "--rows", "4", "--repeat", "0"]


def test_the_command_lists_causes_grafts_and_trials(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--candidate", "untransformed:wrong", *options]) == 1
    text = capsys.readouterr().out
    joined = " ".join(text.split())
    assert "first faulty stage: key" in joined
    assert "matches if hadamard_key is False instead of True" in joined
    assert "store_keys: rope_pairing = half-split: does not" in joined
    assert "store_keys: key.format = bf16: bytes do not fit" in joined
    assert re.search(r"candidate +reference +reference +VIOLATION", text)
    assert max(map(len, text.split("\n"))) <= 100


def test_the_command_has_nothing_to_explain(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--candidate", "untransformed:right", *options]) == 0
    assert "nothing to explain" in capsys.readouterr().out

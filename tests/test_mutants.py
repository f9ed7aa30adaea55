"""The checks are checked: every fault is killed where it is, nothing else is, and no correct run fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsa_crosscheck.compare.candidates.protocol import FUSED, STAGES
from dsa_crosscheck.compare.candidates.reference import FusedReference, ReferenceCandidate
from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.mutants.cases import NAN_SCORES, REVEALED_BY, mutant_inputs
from dsa_crosscheck.compare.mutants.equivalent import EQUIVALENT
from dsa_crosscheck.compare.mutants.expectations import kills, lost_kills, read_kills, write_kills
from dsa_crosscheck.compare.mutants.false_alarms import correct_run, false_alarms
from dsa_crosscheck.compare.mutants.faults import FAULTS
from dsa_crosscheck.compare.mutants.gates import CERTIFICATE, GATES
from dsa_crosscheck.compare.mutants.matrix import Matrix, Outcome, run_matrix
from dsa_crosscheck.compare.mutants.mutant import fault_mutants, flip_mutants
from dsa_crosscheck.compare.mutants.table import render
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.conventions import flips
from dsa_crosscheck.reference.presets import PRESETS

RECORDED = Path(__file__).parent / "data" / "mutants.json"
OFTEN = ("sglang-v4-fp8", "sglang-v4-fp4", "deepseek-v4")
FP8 = PRESETS["sglang-v4-fp8"]
CORRECT_RUNS = 200

SURVIVE_OVERLAP = {"query-weights-bf16", "score-bf16", "select-rank-swapped", "score-last-page-zero"}
SURVIVE_CALC_DIFF = {"query-weights-bf16", "score-bf16", "select-rank-swapped", "select-crowded-bin"}
SURVIVE_SORTED_SCORES = {"query-weights-bf16", "score-bf16", "score-saturated", "hadamard_order=sequency"}


@pytest.mark.parametrize("name", [p if p in OFTEN else pytest.param(p, marks=pytest.mark.slow) for p in PRESETS])
def test_every_fault_is_killed_at_its_stage(name: str) -> None:
    matrix = run_matrix(name)
    assert matrix.problems == ()
    assert lost_kills(matrix, read_kills(RECORDED)) == ()
    expected = sum(1 for _ in flips(PRESETS[name].conventions)) + len(FAULTS)
    assert len({o.mutant for o in matrix.outcomes}) == len(matrix.outcomes) == expected


@pytest.mark.parametrize(
    ("gate", "survivors"),
    [
        ("overlap", SURVIVE_OVERLAP),
        ("calc_diff", SURVIVE_CALC_DIFF),
        ("sorted scores", SURVIVE_SORTED_SCORES),
    ],
)
def test_peer_gates_pass_faults_that_certificates_kill(gate: str, survivors: set[str]) -> None:
    for name in sorted(survivors):
        matrix = run_matrix("sglang-v4-fp8", only=name)
        (outcome,) = (o for o in matrix.outcomes if o.mutant == name)
        assert outcome.killed[CERTIFICATE], name
        assert outcome.killed[gate] is False, name


def test_peer_gates_can_kill() -> None:
    matrix = run_matrix("sglang-v4-fp8", only="hadamard_key=False")
    assert matrix.outcomes[0].killed == dict.fromkeys(GATES, True)


def test_faults_go_into_the_emulated_kernels() -> None:
    matrix = run_matrix("sglang-v4-fp8", lambda c: load("emulated", c), only="head-dropped")
    assert [o.mutant for o in matrix.outcomes] == ["query-head-dropped", "score-head-dropped"]
    assert matrix.problems == ()


def test_a_race_needs_repeats() -> None:
    inputs = mutant_inputs("gaussian", FP8.geometry)
    for name in ("score-race", "select-race"):
        faulty = FAULTS[name].apply(ReferenceCandidate(FP8.conventions), inputs)
        assert FAULTS[name].needs_repeat
        assert crosscheck(inputs, faulty, repeat=0).verdict.passed


def test_a_fault_names_its_stage_and_leaves_the_others_alone() -> None:
    inputs = mutant_inputs("gaussian", FP8.geometry)
    right = ReferenceCandidate(FP8.conventions)
    for fault in FAULTS.values():
        assert fault.stage in STAGES
        faulty = fault.apply(right, inputs)
        assert faulty.name == f"reference with {fault.name}"
        assert [s for s in STAGES if getattr(faulty, s) != getattr(right, s)] == [fault.stage]


def test_a_fault_needs_a_candidate_with_the_stage() -> None:
    inputs = mutant_inputs("gaussian", FP8.geometry)
    with pytest.raises(ValueError, match=r"`Fault.apply\(candidate=...\)` should have a method 'score'"):
        FAULTS["score-bf16"].apply(FusedReference(FP8.conventions), inputs)


def test_tables_name_mutants_that_exist() -> None:
    mutants = [m for p in PRESETS.values() for m in (*flip_mutants(p.conventions), *fault_mutants())]
    names = {m.name for m in mutants} | {m.field for m in mutants}
    assert {e.mutant for e in EQUIVALENT} <= names
    assert set(REVEALED_BY) <= names
    assert {m.stage for m in mutants} == {*STAGES, FUSED}


def test_unknown_cases_and_mutants_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`mutant_inputs\(case=...\)` should be one of"):
        mutant_inputs(NAN_SCORES, FP8.geometry)
    with pytest.raises(ValueError, match=r"`run_matrix\(only=...\)` should be part of a mutant's name, got 'nothing'"):
        run_matrix("sglang-v4-fp8", only="nothing")


def outcome(**changes: object) -> Outcome:
    row = Outcome("a", "score", "gaussian", dict.fromkeys(GATES, True), "VIOLATION", "score", "")
    return replace(row, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"killed": {CERTIFICATE: False}, "pinned": "", "equivalent": "because"}, ""),
        ({"equivalent": "because"}, "a is killed, but listed as equivalent: because"),
        ({"killed": {CERTIFICATE: False}, "verdict": "TIE"}, "a survives the certificates (TIE) on gaussian"),
        ({"pinned": "select"}, "a is pinned to select, not score"),
    ],
)
def test_problems(changes: dict[str, object], problem: str) -> None:
    row = outcome(**changes)
    assert row.problem == problem
    assert Matrix("p", "c", (row,)).problems == ((problem,) if problem else ())


def test_a_failed_right_candidate_is_a_problem() -> None:
    matrix = Matrix("p", "c", (outcome(),), ("spread (VIOLATION at score)",))
    assert matrix.problems == ("the right candidate fails on spread (VIOLATION at score)",)
    assert "PROBLEM: the right candidate fails on spread (VIOLATION at score)" in render(matrix)


def test_lost_kills(tmp_path: Path) -> None:
    path = tmp_path / "kills.json"
    write_kills(path, (Matrix("p", "c", (outcome(), outcome(mutant="b"))), Matrix("q", "c", (outcome(),))))
    expected = read_kills(path)
    assert expected == {"p": {"a": "score", "b": "score"}, "q": {"a": "score"}}
    survived = Matrix("p", "c", (outcome(killed={CERTIFICATE: False}),))
    assert lost_kills(survived, expected) == (
        "p: a used to be killed at score and now survives",
        "p: b used to be killed at score and now is no longer made",
    )
    assert lost_kills(survived, expected, only="a") == ("p: a used to be killed at score and now survives",)
    with pytest.raises(ValueError, match=r"`lost_kills\(expected=...\)` should hold 'r', got \('p', 'q'\)"):
        lost_kills(Matrix("r", "c", ()), expected)
    write_kills(path, (Matrix("p", "c", (outcome(),)),))
    assert read_kills(path) == {"p": {"a": "score"}, "q": {"a": "score"}}


@pytest.mark.parametrize("text", ["[]", "{", '{"p": {"a": 1}}'])
def test_a_file_that_holds_no_kills_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kills.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="`--expected` should"):
        read_kills(path)


def test_no_false_alarms() -> None:
    assert false_alarms(OFTEN, CORRECT_RUNS) == []


def test_correct_runs_differ_from_the_reference_and_from_each_other() -> None:
    reports = [correct_run("sglang-v4-fp8", seed) for seed in range(5)]
    assert {r.verdict for r in reports} == {Verdict.WITHIN_BOUND}
    assert all(any(s.stage == "scores" and s.differing for s in r.stages) for r in reports)
    assert len({r.error["calc_diff"] for r in reports}) > 1


def test_false_alarms_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"`false_alarms\(runs=...\)` should not be negative, got -1"):
        false_alarms(OFTEN, -1)
    with pytest.raises(ValueError, match=r"`false_alarms\(presets=...\)` should name at least one preset"):
        false_alarms((), 1)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix_file = tmp_path / "matrix.json"
    options = ["mutants", "--preset", "sglang-v4-fp8", "--only", "relu", "--json", str(matrix_file)]
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert "certificate    kills 3 of 3 faults" in shown
    written = json.loads(matrix_file.read_text())["sglang-v4-fp8"]
    assert [o["mutant"] for o in written["outcomes"]] == ["relu=False", "score-abs-for-relu", "score-relu-after-weight"]

    lost = tmp_path / "kills.json"
    lost.write_text('{"sglang-v4-fp8": {"relu=backwards": "score"}}')
    assert main([*options, "--expected", str(lost)]) == 1
    assert "LOST: sglang-v4-fp8: relu=backwards used to be killed at score" in capsys.readouterr().out


def test_command_counts_false_alarms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--preset", "sglang-v4-fp8", "--false-alarms", "2"]) == 0
    assert capsys.readouterr().out == "0 false alarms in 2 correct runs of sglang-v4-fp8\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--preset", "sglang-v4-fp8", "--all-presets"],
        ["--false-alarms", "1", "--only", "relu"],
        ["--record", "kills.json", "--only", "relu"],
        ["--json", "no/such/folder/matrix.json"],
        ["--preset", "nothing"],
    ],
)
def test_command_refuses(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", *options]) == 2
    assert "should" in capsys.readouterr().err


def test_recorded_kills_cover_every_preset() -> None:
    recorded = read_kills(RECORDED)
    assert set(recorded) == set(PRESETS)
    assert kills(()) == {}
    assert min(len(mutants) for mutants in recorded.values()) > 80

"""The command line: what it refuses, what it writes, and its exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dsa_crosscheck.compare import cli, engine
from dsa_crosscheck.fixtures.case_file import KIND, save_case
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.fixtures.netcdf import read_arrays, write_arrays
from dsa_crosscheck.reference.geometry import Geometry

QUICK = ("--candidate", "unfused", "--case", "gaussian", "--context", "512", "--rows", "6", "--repeat", "0")
FILE = ("--candidate", "unfused", "--repeat", "0", "--case")


def compare(*options: str) -> int:
    """Exit code of ``dsa-crosscheck compare``, in this process."""
    return cli.main(["compare", *options])


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line that a wrong use prints, with exit code 2."""
    assert compare(*options) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"dsa-crosscheck: error: [^\n]+\n", printed.err), printed.err
    return printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "sglang"), r"`preset` should be one of \('deepseek-v32', .*got 'sglang'"),
        (("--candidate", "fused"), r"`--candidate` should be one of emulated, .*unfused, .*module:object; got 'fused'"),
        (("--candidate", "nowhere:thing"), r"'nowhere:thing' .*does not load: ModuleNotFoundError: .*'nowhere'"),
        (("--candidate", "json:nothing"), r"'json:nothing' .*does not load: AttributeError: .*'nothing'"),
        (("--candidate", "json:decoder"), r"'json:decoder' should have an attribute `name`, got <module"),
        (
            ("--candidate", "emulated", "--preset", "transformers-v4"),
            r"hadamard_key=True, got False; .*'unfused' follows any",
        ),
        (("--case", "guassian"), r"`--case` should be one of gaussian, .*or the path of a file; got 'guassian'"),
        (("--bound", "tight"), r"`bound` should be one of \('ieee-fp32', .*got 'tight'"),
        (("--context", "0"), r"`build_case\(context=...\)` should be a positive integer, got 0"),
        (("--context", "-5"), r"`build_case\(context=...\)` should be a positive integer, got -5"),
        (("--rows", "0"), r"`build_case\(rows=...\)` should be a positive integer, got 0"),
        (("--topk", "0"), r"`build_case\(topk=...\)` should be a positive integer, got 0"),
        (("--seed", "-1"), r"`build_case\(seed=...\)` should be a non-negative integer, got -1"),
        (("--max-mismatches", "-1"), r"max_mismatches=...\)` should not be negative, got -1"),
        (("--case", "captured-text", "--context", "9000"), r"should be at most the captured 8192 tokens, got 9000"),
        (("--case", "captured-text", "--rows", "99"), r"should be at most \d+, the rows captured in the first 512"),
        (("--case", "captured-text", "--preset", "deepseek-v32"), r"compress_ratio=4 as captured, got 1"),
        (("--json", "/no/such/folder/report.json"), r"`--json` should be the path of a file in an existing folder"),
        (("--json", "."), r"`--json` should be the path of a file in an existing folder, got \."),
    ],
)
def test_wrong_use_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    rows = () if "captured-text" not in options or "--rows" in options else ("--rows", "1")
    assert re.search(message, refused(capsys, *QUICK, *rows, *options))


def test_a_reader_that_stops_is_no_failure() -> None:
    command = [sys.executable, "-c", "from dsa_crosscheck.compare.cli import main; raise SystemExit(main())"]
    with subprocess.Popen(
        [*command, "fixtures", "show", "sglang-v4-fp8.fp8.gaussian"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 2


@pytest.mark.parametrize(("option", "value"), [("--context", "many"), ("--rows", "1.5"), ("--tolerance", "1")])
def test_wrong_options_print_the_usage(capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        compare(option, value)
    assert stopped.value.code == 2
    assert option in capsys.readouterr().err


def test_a_command_is_required() -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 2


@pytest.fixture
def case_file(tmp_path: Path) -> Path:
    """A small case as a file, with its own sizes."""
    path = tmp_path / "my case.nc"
    save_case(path, build_case("gaussian", context=600, rows=5, topk=20, seed=3, geometry=Geometry()))
    return path


def test_a_case_file_is_compared_as_it_is(case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert compare(*FILE, str(case_file), "--json", str(report)) == 0
    assert json.loads(report.read_text())["case"] == {
        "name": str(case_file),
        "keys": 150,
        "requests": 4,
        "page": 64,
        "rows": 5,
        "k": 20,
    }
    assert compare(*FILE, str(case_file), "--topk", "7", "--json", str(report)) == 0
    assert json.loads(report.read_text())["case"]["k"] == 7
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("option", "value"), [("--context", "512"), ("--rows", "3"), ("--seed", "0")])
def test_a_case_file_has_its_own_sizes(
    case_file: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    error = refused(capsys, *FILE, str(case_file), option, value)
    assert f"`{option}` should be left out: the case file" in error
    assert f"has its own, got {value}" in error


def test_nan_in_a_case_file(case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays, attributes = read_arrays(case_file, KIND)
    arrays["pooled"][3, 5] = np.nan
    named = {name: (tuple(f"{name}{axis}" for axis in range(a.ndim)), a) for name, a in arrays.items()}
    kept = {k: v for k, v in attributes.items() if k not in ("kind", "format_version", "content_sha256")}
    write_arrays(case_file, KIND, named, kept)
    error = refused(capsys, *FILE, str(case_file), "--json", str(tmp_path / "report.json"))
    assert "`Inputs(pooled=...)` should be finite, got nan at (3, 5)" in error
    assert not (tmp_path / "report.json").exists()


def damaged(content: bytes) -> bytes:
    """One byte in the middle is another."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x55]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "spoil",
    [lambda b: b"not a case", lambda b: b"", lambda b: b[: len(b) // 2], damaged],
    ids=["text", "empty", "cut", "bit"],
)
def test_a_corrupt_case_file(
    case_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: object
) -> None:
    case_file.write_bytes(spoil(case_file.read_bytes()))  # type: ignore[operator]
    error = refused(capsys, *FILE, str(case_file), "--json", str(tmp_path / "report.json"))
    assert "my case.nc" in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my case.nc"]


def test_a_folder_is_no_case_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, *FILE, str(tmp_path))
    assert f"or the path of a file; got {str(tmp_path)!r}" in error


def test_selecting_everything_decides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*QUICK, "--topk", "100000") == 3
    text = capsys.readouterr().out
    assert "verdict: VACUOUS" in text
    assert "k = 100000 selects every visible key of every row" in text


def test_defaults_leave_room_for_a_wrong_selection(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert compare(*QUICK, "--json", str(report)) == 0
    assert json.loads(report.read_text())["case"]["k"] == 32
    assert compare("--candidate", "unfused", "--context", "512", "--repeat", "0", "--json", str(report)) == 0
    assert json.loads(report.read_text())["case"]["rows"] == 6


@pytest.mark.parametrize(
    "options",
    [
        QUICK,
        (*QUICK, "--preset", "deepseek-v4", "--bound", "bf16-chain", "--seed", "7", "--max-mismatches", "3"),
        ("--candidate", "unfused", "--context", "512", "--repeat", "0"),
    ],
)
def test_the_replay_line_repeats_the_run(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert compare(*options, "--json", str(first)) == 0
    replay = shlex.split(capsys.readouterr().out.split("replay: ")[1].replace("\\\n", ""))
    assert replay[0] == "dsa-crosscheck"
    assert cli.main([*replay[1:], "--json", str(second)]) == 0
    assert first.read_text() == second.read_text()


def test_a_case_file_is_replayed_too(case_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(*FILE, str(case_file)) == 0
    text = capsys.readouterr().out
    replay = shlex.split(text.split("replay: ")[1].replace("\\\n", ""))
    assert cli.main(replay[1:]) == 0
    assert capsys.readouterr().out == text


def test_an_unexpected_failure_is_not_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("of the tool itself")

    monkeypatch.setattr(engine, "crosscheck", broken)
    assert compare(*QUICK) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.endswith("dsa-crosscheck: error: unexpected failure, see above\n")

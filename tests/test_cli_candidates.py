"""Candidates that the command line finds: in the working directory, and as installed plug-ins."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dsa_crosscheck.compare import cli

SMALL = ("--case", "gaussian", "--context", "512", "--rows", "6", "--repeat", "0")

MODULE = """
from dsa_crosscheck.compare.candidates.unfused import Unfused

import beside_{name}


class Right(Unfused):
    name = "mine"


class Wrong(Right):
    def score(self, *args):
        return super().score(*args) * 1.01


class Raising(Right):
    def select(self, *args):
        raise KeyError("no such page")


class Late(Right):
    def select(self, *args):
        import late_{name}

        return super().select(*args)


def make(conventions):
    return Right(conventions)


ready = Right(None)
nameless = Right(None)
nameless.conventions = None
"""


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package in the working directory, which is not on the path of imports; its modules' names are its own."""
    name = f"candidate_{abs(hash(request.node.name))}"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text(MODULE.format(name=name))
    (tmp_path / f"beside_{name}.py").touch()
    (tmp_path / f"late_{name}.py").touch()
    monkeypatch.chdir(tmp_path)
    # A console script has no entry for the working directory.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".", str(tmp_path))])
    return f"{name}.kernels"


@pytest.mark.parametrize("thing", ["Right", "make", "ready", "Late"])
def test_class_function_and_object_of_the_working_directory(
    module: str, thing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(sys.path)
    assert cli.main(["compare", "--candidate", f"{module}:{thing}", *SMALL]) == 0
    assert "candidate: mine" in capsys.readouterr().out
    assert sys.path == before


def test_preset_reaches_what_is_called(module: str) -> None:
    options = ["compare", "--preset", "sglang-v4-bf16", *SMALL, "--candidate"]
    assert cli.main([*options, f"{module}:make"]) == 0
    assert cli.main([*options, f"{module}:ready"]) == 1, "an object keeps its own conventions"


@pytest.mark.parametrize(("thing", "verdict"), [("Wrong", "verdict: SCALE_ONLY"), ("Raising", "verdict: MALFORMED")])
def test_a_failing_candidate_gives_exit_code_1(
    module: str, thing: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.json"
    assert cli.main(["compare", "--candidate", f"{module}:{thing}", *SMALL, "--json", str(report)]) == 1
    printed = capsys.readouterr()
    assert verdict in printed.out
    assert printed.err == ""
    assert report.exists()


def test_conventions_must_come_from_somewhere(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["compare", "--candidate", f"{module}:nameless", *SMALL]
    assert cli.main(options) == 2
    assert "is needed: 'mine' declares no Conventions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("raise RuntimeError('no GPU')", "does not load: RuntimeError: no GPU"),
        ("import sys; sys.exit(0)", "does not load: SystemExit: 0"),
        ("def thing(:", "does not load: SyntaxError"),
        ("class thing:\n    def __init__(self, c):\n        1 / 0", "does not load: ZeroDivisionError"),
        ("class thing:\n    name = 'x'", "should have an attribute `conventions`"),
    ],
)
def test_a_module_that_does_not_load(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"broken_{abs(hash(content))}"
    (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "--candidate", f"{name}:thing", *SMALL]) == 2
    assert message in capsys.readouterr().err


def install(folder: Path, distribution: str, **candidates: str) -> None:
    """A distribution with entry points, as an installer leaves it behind."""
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in candidates.items())
    (metadata / "entry_points.txt").write_text(f"[dsa_crosscheck.candidates]\n{lines}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed plug-ins: a good one, one that raises, one whose module is missing."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "good_plugin.py").write_text(MODULE.replace("import beside_{name}", "").format(name="kernels"))
    (site / "raising_plugin.py").write_text("raise RuntimeError('built for another machine')")
    install(site, "good", good="good_plugin:Right", emulated="good_plugin:Wrong")
    install(site, "bad", raising="raising_plugin:Right", missing="no_such_plugin:Right", nothing="good_plugin")
    monkeypatch.syspath_prepend(str(site))
    return site


def test_a_broken_plugin_breaks_no_other(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("good", "emulated", "unfused", "good_plugin:ready"):
        assert cli.main(["compare", "--candidate", name, *SMALL]) == 0, name
        assert capsys.readouterr().err == ""
    assert "raising_plugin" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raising", r"does not load: RuntimeError: built for another machine"),
        ("missing", r"does not load: ModuleNotFoundError"),
        ("nothing", r"does not load: AttributeError"),
        ("other", r"transformers-v4, good, missing, nothing, raising, or package.module:object; got"),
    ],
)
def test_a_broken_plugin_says_why(site: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--candidate", name, *SMALL]) == 2
    assert message in capsys.readouterr().err


def test_a_name_taken_twice_is_an_error_for_that_name_alone(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "rival", good="raising_plugin:Right")
    assert cli.main(["compare", "--candidate", "good", *SMALL]) == 2
    assert "'good' is the name of several plug-ins: " in capsys.readouterr().err
    assert cli.main(["compare", "--candidate", "good_plugin:ready", *SMALL]) == 0


def test_help_is_light_and_quick() -> None:
    """Parsing loads no numeric library, so that a typo is not answered after seconds."""
    script = """
        import resource, sys
        from dsa_crosscheck.compare import cli
        for words in (["--help"], ["compare", "--help"], ["--version"]):
            try:
                cli.main(words)
            except SystemExit as stopped:
                assert stopped.code == 0
        heavy = {"jax", "torch", "xarray", "tvm_ffi", "rich"} & sys.modules.keys()
        assert not heavy, heavy
        used = resource.getrusage(resource.RUSAGE_SELF)
        print("seconds", used.ru_utime + used.ru_stime)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--candidate" in done.stdout
    assert "exit codes: 0 pass, 1 fail, 2 usage or environment error, 3 nothing decided" in done.stdout
    assert float(done.stdout.rsplit("seconds", 1)[1]) < 0.5

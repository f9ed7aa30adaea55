"""The installed package: found from anywhere, whatever lies beside, and complete."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from dsa_crosscheck.cuda_impl import build
from dsa_crosscheck.fixtures.captured import PACKAGED, load_captured

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {package: ROOT / folder for package, folder in SETUPTOOLS["package-dir"].items()}
"""The four packages that have a folder of their own at the top of the repository."""
NOT_SHIPPED = ("*/__pycache__/*", "*.pyc")


def files() -> list[Path]:
    """Every file below the four folders."""
    found = [p for folder in FOLDERS.values() for p in folder.rglob("*") if p.is_file()]
    return [p for p in found if not any(fnmatch.fnmatch(str(p), pattern) for pattern in NOT_SHIPPED)]


def package_of(path: Path) -> str:
    """Dotted name of the package that a folder is."""
    package, folder = next((p, f) for p, f in FOLDERS.items() if path.is_relative_to(f))
    return ".".join([package, *path.relative_to(folder).parts])


def test_the_four_folders_are_the_packages() -> None:
    assert {name: folder.name for name, folder in FOLDERS.items()} == {
        f"dsa_crosscheck.{name}": name for name in ("reference", "cuda_impl", "fixtures", "compare")
    }
    assert not (ROOT / "__init__.py").exists()


def test_every_package_is_listed() -> None:
    found = {package_of(path.parent) for path in files() if path.name == "__init__.py"}
    assert found == set(SETUPTOOLS["packages"])


def test_every_module_lies_in_a_package() -> None:
    stray = [path for path in files() if path.suffix == ".py" and package_of(path.parent) not in SETUPTOOLS["packages"]]
    assert stray == []


def test_every_other_file_is_package_data() -> None:
    missing = []
    for path in files():
        package, folder = next((p, f) for p, f in FOLDERS.items() if path.is_relative_to(f))
        patterns = SETUPTOOLS["package-data"].get(package, [])
        name = path.relative_to(folder).as_posix()
        # setuptools' `*` stops at a folder, unlike fnmatch's.
        if path.suffix != ".py" and not any(
            fnmatch.fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in patterns
        ):
            missing.append(name)
    assert missing == []


def test_every_pattern_of_package_data_matches() -> None:
    for package, patterns in SETUPTOOLS["package-data"].items():
        for pattern in patterns:
            assert list(FOLDERS[package].glob(pattern)), f"{package}: {pattern}"


def test_data_is_found_through_the_package() -> None:
    fixtures = resources.files("dsa_crosscheck.fixtures").joinpath(PACKAGED)
    assert fixtures.is_file()
    assert load_captured().tokens == 8192
    kernels = resources.files("dsa_crosscheck.cuda_impl")
    assert {unit.name for unit in build.translation_units()} <= {p.name for p in kernels.joinpath("kernels").iterdir()}
    assert build.SIMT.joinpath("cuda_on_host.h").is_file()
    for package in FOLDERS:
        assert resources.files(package).joinpath("py.typed").is_file()


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An empty folder but for modules named like the repository's folders, which raise."""
    for name in ("reference", "compare", "cuda_impl", "fixtures", "tests"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name}.py of the working directory')\n")
    return tmp_path


def start(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder`` with nothing on the path of imports but what is installed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def script() -> str:
    """The console script of this environment."""
    found = shutil.which("dsa-crosscheck", path=sysconfig.get_path("scripts"))
    assert found is not None
    return found


def test_the_main_job_runs_beside_modules_of_the_same_names(hostile: Path) -> None:
    done = start(hostile, script(), "compare", "--context", "2048", "--json", "report.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "verdict: " in done.stdout
    report = json.loads((hostile / "report.json").read_text())
    assert (report["candidate"], report["case"]["name"]) == ("emulated", "captured-text")
    assert report["first_fault"] is None


def test_python_m_style_imports_are_not_shadowed(hostile: Path) -> None:
    """With the working directory first on the path, as in a notebook or under ``python -c``."""
    done = start(hostile, sys.executable, "-c", "import dsa_crosscheck.compare.engine, dsa_crosscheck.cuda_impl.build")
    assert done.returncode == 0, done.stderr
    shadowed = start(hostile, sys.executable, "-c", "import compare")
    assert "compare.py of the working directory" in shadowed.stderr


def test_the_script_takes_candidates_of_the_working_directory(hostile: Path) -> None:
    (hostile / "mine.py").write_text(
        "from dsa_crosscheck.compare.candidates.unfused import Unfused\n"
        "class Mine(Unfused):\n"
        "    def select(self, scores, lengths, topk):\n"
        "        return super().select(-scores, lengths, topk)\n"
    )
    small = ("--case", "gaussian", "--context", "512", "--repeat", "0")
    done = start(hostile, script(), "compare", "--candidate", "mine:Mine", *small)
    assert done.returncode == 1, done.stderr
    assert "FIRST FAULT: selection" in done.stdout
    done = start(hostile, script(), "compare", "--candidate", "compare:Mine", *small)
    assert done.returncode == 2
    assert "compare.py of the working directory" in done.stderr

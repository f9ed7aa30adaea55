"""The plug-in as installed: found by its entry point, light, and under pytest-xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from kernel_repository import FIXTURE, SECOND, repository

pytest_plugins = ["pytester"]

HEAVY = ("jax", "torch", "xarray", "numpy")
LOADED = f"""
import sys
import pytest
code = pytest.main(["-q", "-p", "dsa_crosscheck", "-p", "no:cacheprovider", "test_nothing.py"])
loaded = [name for name in {HEAVY} if name in sys.modules]
print(int(code), "dsa_crosscheck.compare.pytest_plugin" in sys.modules, loaded)
"""


def test_entry_point() -> None:
    (found,) = entry_points(group="pytest11", name="dsa_crosscheck")
    assert found.value == "dsa_crosscheck.compare.pytest_plugin"


def test_a_test_run_without_cross_checks_loads_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("test_nothing.py").write_text("def test_nothing():\n    pass\n")
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plug-ins may load what they like
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, cwd=pytester.path, env=alone, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 True []", done.stdout + done.stderr


def test_under_xdist(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        def test_right(dsa_case):
            assert_crosscheck(Right(), dsa_case, repeat=0)

        def test_wrong(dsa_case):
            assert_crosscheck(Wrong(), dsa_case, repeat=0)

        def test_skipped(dsa_case):
            pytest.skip("not today")
        """,
    )
    pytester.path.joinpath("known.toml").write_text(
        f'known_failures = [{{ case = "test_kernel.py::test_wrong[{SECOND}]", reason = "r", link = "l" }}]'
    )
    done = pytester.runpytest_subprocess(
        "-n", "2", "--dsa-fixtures", f"{FIXTURE},{SECOND}", "--dsa-known-failures", "known.toml"
    )
    done.assert_outcomes(passed=2, failed=3, xfailed=1)
    done.stdout.fnmatch_lines_random(
        [
            f"E *replay: *python -m pytest 'test_kernel.py::test_wrong[[]{FIXTURE}]'",
            f"*test_skipped[[]{FIXTURE}] was skipped, which nobody asked for: *not today",
        ]
    )

"""A stranger's repository for tests of the plug-in: modules of the same names as ours, a kernel, its test."""

from __future__ import annotations

import textwrap

import pytest

# Loaded before any run inside this process, which forgets the modules that it was the first to import.
import dsa_crosscheck.compare.diagnosis.explain
import dsa_crosscheck.compare.render
import dsa_crosscheck.compare.testing.isolation
import dsa_crosscheck.compare.testing.stages
import dsa_crosscheck.compare.testing.whole
import dsa_crosscheck.fixtures.golden.packaged  # noqa: F401

FIXTURE = "sglang-v4-fp8.fp8.gaussian"
SECOND = "deepseek-v4.fp4.gaussian"

KERNEL = """
import os

import pytest
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.compare.testing import assert_crosscheck
from dsa_crosscheck.reference.presets import PRESETS


class Right(Unfused):
    name = "my-kernel"

    def __init__(self):
        super().__init__(PRESETS["sglang-v4-fp8"].conventions)


class Wrong(Right):
    def score(self, *args):
        scores = super().score(*args)
        scores[:, 3] *= 1.001
        return scores
"""


def repository(pytester: pytest.Pytester, test: str) -> None:
    """Write the files: ``test`` follows the kernels in ``test_kernel.py``."""
    for name in ("reference", "compare", "cuda_impl"):
        pytester.path.joinpath(f"{name}.py").write_text(f"raise ImportError('{name}.py of the repository')\n")
    folder = pytester.mkdir("fixtures")
    folder.joinpath("__init__.py").write_text("raise ImportError('fixtures of the repository')\n")
    pytester.path.joinpath("test_kernel.py").write_text(KERNEL + textwrap.dedent(test))


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """The repository's tests on one fixture, unless the options say which."""
    which = () if any(option.startswith("--dsa-fixtures") for option in options) else ("--dsa-fixtures", FIXTURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # no time for other plug-ins of this environment
        # The plug-in is loaded already, which has nothing to do with the test.
        alone = ("-p", "dsa_crosscheck", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
        return pytester.runpytest_inprocess(*alone, *which, *options)

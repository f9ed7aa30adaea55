"""Candidates that crash or hang, and the process that they do it in."""

from __future__ import annotations

import os

import pytest
from kernel_repository import FIXTURE, repository, run

pytest_plugins = ["pytester"]

KERNELS = """
    import ctypes
    import time

    class Misbehaves(Right):
        def __init__(self, how):
            super().__init__()
            self.how = how

        calls = 0

        def score(self, *args):
            Misbehaves.calls += 1
            print(f"call {Misbehaves.calls}")
            if self.how == "crash":
                ctypes.string_at(0)
            if self.how == "hang":
                time.sleep(600)
            scores = super().score(*args)
            return scores * 1.5 if self.how == "wrong" else scores

    def check(case, how):
        assert_crosscheck(Misbehaves(how), case, repeat=0)
"""


def test_a_crash_or_a_hang_costs_its_own_case(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        KERNELS
        + """
    def test_1_right(dsa_case):
        check(dsa_case, "")

    def test_2_crash(dsa_case):
        check(dsa_case, "crash")

    def test_3_hang(dsa_case):
        check(dsa_case, "hang")

    def test_4_right(dsa_case):
        check(dsa_case, "")

    def test_5_wrong(dsa_case):
        check(dsa_case, "wrong")

    def test_6_right(dsa_case):
        check(dsa_case, "")
    """,
    )
    done = run(pytester, "-rP", "--dsa-isolate", "--dsa-timeout", "10")
    done.assert_outcomes(passed=3, failed=3)
    done.stdout.re_match_lines(
        [
            r"E .*my-kernel crashed: SIGSEGV",
            rf"E +compared: +my-kernel on {FIXTURE} .* in a process of its own",
            r"E +first fault: stage score",
            rf"E +replay: +python -m pytest 'test_kernel.py::test_2_crash\[{FIXTURE}\]' --dsa-isolate --dsa-timeout 10",
            r"E +call 3",
            r"E +Fatal Python error: Segmentation fault",
            r"E +File .*test_kernel.py.* in score",
            r"E .*my-kernel hung: no result within 10 s",
            r"E +first fault: stage score",
            r"E +File .*test_kernel.py.* in score",
            r"E .*my-kernel: SCALE_ONLY",
            # What a case left behind reaches the next one where it passed, and only there.
            *(r"_+ test_1_right.*", r"call 1", r"call 2", r"_+ test_4_right.*", r"call 1", r"call 2"),
            *(r"_+ test_6_right.*", r"call 1"),
        ]
    )


def told(done: pytest.RunResult) -> int:
    """The process that the candidate says it ran in."""
    line = next(line for line in done.outlines if line.startswith("E") and "in process " in line)
    return int(line.rpartition("in process ")[2])


@pytest.mark.parametrize(
    ("device", "options", "isolated"),
    [
        ("cpu", (), False),
        ("cpu", ("--dsa-isolate",), True),
        ("cuda:0", (), True),
        ("cuda:0", ("--no-dsa-isolate",), False),
        ("cpu", ("--dsa-isolate", "--no-dsa-isolate"), False),
    ],
)
def test_who_is_isolated(pytester: pytest.Pytester, device: str, options: tuple[str, ...], isolated: bool) -> None:
    repository(
        pytester,
        f"""
        class OnDevice(Right):
            device = "{device}"

            def __init__(self):
                raise ValueError(f"in process {{os.getpid()}}")

        def test_my_kernel(dsa_case):
            assert_crosscheck(OnDevice, dsa_case, repeat=0)
        """,
    )
    done = run(pytester, *options)
    done.assert_outcomes(failed=1)
    assert (told(done) != os.getpid()) is isolated


def test_the_built_in_gpu_candidate_is_isolated_by_name() -> None:
    from dsa_crosscheck.compare.testing.whole import on_gpu

    assert on_gpu("cuda")
    assert on_gpu("sglang")
    assert not on_gpu("emulated")


def test_modules_that_are_not_on_the_path(pytester: pytest.Pytester) -> None:
    """Under the import mode that leaves the path alone, the other process finds the test module by its file."""
    repository(pytester, "def test_my_kernel(dsa_case):\n    assert_crosscheck(Right(), dsa_case, repeat=0)\n")
    run(pytester, "--dsa-isolate", "--import-mode=importlib").assert_outcomes(passed=1)


def test_a_candidate_that_cannot_be_sent_is_an_error(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        def test_my_kernel(dsa_case):
            candidate = Right()
            candidate.select = lambda *args: None
            assert_crosscheck(candidate, dsa_case, repeat=0)
        """,
    )
    done = run(pytester, "--dsa-isolate")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E *ValueError: `assert_crosscheck(candidate=...)` should be picklable to be isolated*"])

"""The plug-in as the author of a kernel sees it, from a repository that has nothing to do with this one."""

from __future__ import annotations

import pytest
from kernel_repository import FIXTURE, SECOND, repository, run

from dsa_crosscheck.fixtures.golden.packaged import packaged_names

pytest_plugins = ["pytester"]

FP8 = "sglang-v4-fp8"
CHECK = """
    def test_my_kernel(dsa_case):
        assert_crosscheck({kernel}, dsa_case, repeat=0)
"""


def test_a_right_kernel_passes_on_each_fixture(pytester: pytest.Pytester) -> None:
    repository(pytester, CHECK.format(kernel="Right()"))
    done = run(pytester, "-v", "--dsa-fixtures", f"{FIXTURE},deepseek-v4.*.gaussian")
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines([f"*::test_my_kernel[[]{SECOND}] PASSED*", f"*::test_my_kernel[[]{FIXTURE}] PASSED*"])


def test_a_class_is_called_with_the_fixtures_conventions(pytester: pytest.Pytester) -> None:
    repository(pytester, CHECK.format(kernel="Unfused"))
    run(pytester, "--dsa-fixtures", f"{FIXTURE},{SECOND},transformers-v4.exact.gaussian").assert_outcomes(passed=3)


def test_failure_text(pytester: pytest.Pytester) -> None:
    """The third key of a row lies at offset 3 of its page."""
    repository(pytester, CHECK.format(kernel="Wrong()"))
    done = run(pytester)
    done.assert_outcomes(failed=1)
    number = r"-?\d[\d.e+-]*"
    done.stdout.re_match_lines_random(
        [
            r"E .*my-kernel: VIOLATION - different by more than any admissible arithmetic",
            rf"E +compared: +my-kernel with the float64 reference under {FP8}, on {FIXTURE} \(keys 17, .*ieee-fp32",
            r"E +first fault: scores \(VIOLATION\): \d+ of 54 elements wrong",
            r"E +at: +row \d key 3 \(\d+:3\)",
            rf"E +values: .*here {number} for {number}",
            rf"E +gap: +{number}",
            rf"E +bound: +{number} \(ieee-fp32\)",
            rf"E +would pass: +{number} times the bound",
            r"E +cause: ",
            r"E +where: ",
            rf"E +replay: +python -m pytest 'test_kernel.py::test_my_kernel\[{FIXTURE}\]'",
            r"E +scores +54 +\d+ .* VIOLATION",
        ]
    )


def test_failure_text_names_a_cause_and_a_selections_physical_address(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        class HalfSplit(Right):
            def store_keys(self, *args):
                Unfused(self.conventions.with_field("rope_pairing", "half-split")).store_keys(*args)

        class Forgets(Right):
            def select(self, scores, lengths, topk):
                best = scores.argmax(1, keepdim=True)
                return super().select(scores.scatter(1, best, -1e30), lengths, topk)

        def test_pairs(dsa_case):
            assert_crosscheck(HalfSplit(), dsa_case, repeat=0)

        def test_best(dsa_case):
            assert_crosscheck(Forgets(), dsa_case, repeat=0)
        """,
    )
    done = run(pytester)
    done.assert_outcomes(failed=2)
    done.stdout.re_match_lines_random(
        [
            r"E +cause: +matches if rope_pairing is half-split instead of interleaved",
            r"E +first fault: selection \(VIOLATION\)",
            r"E +at: +row \d key \d+ \(\d+:\d+\)",
            r"E +values: +key \d+ of score \d\S+ missed for key \d+ of -\d",
            r"E +bound: +none: equality is demanded",
        ]
    )


def test_without_options_every_committed_fixture_is_a_case(pytester: pytest.Pytester) -> None:
    repository(pytester, CHECK.format(kernel="Right()"))
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-q", "--collect-only")
    collected = [line for line in done.outlines if "::" in line]
    assert collected == [f"test_kernel.py::test_my_kernel[{name}]" for name in packaged_names()]


def collected(done: pytest.RunResult) -> set[str]:
    """Tests and fixtures of a ``--collect-only`` run, as test[fixture]."""
    return {line.partition("::")[2] for line in done.outlines if "::" in line}


def test_options_and_marker_together_leave_what_both_name(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        @pytest.mark.dsa(presets="deepseek-v4")
        def test_preset(dsa_case):
            pass

        @pytest.mark.dsa(fixtures=["*.gaussian"])
        class TestClass:
            @pytest.mark.dsa(presets=["sglang-v4-fp8", "transformers-*"])
            def test_both(self, dsa_case):
                pass
        """,
    )
    done = run(pytester, "-q", "--collect-only", "--dsa-fixtures", "*.gaussian,*.plateau", "-m", "dsa")
    assert collected(done) == {
        f"test_preset[{SECOND}]",
        "test_preset[deepseek-v4.exact.plateau]",
        f"TestClass::test_both[{FIXTURE}]",
        "TestClass::test_both[transformers-v4.exact.gaussian]",
    }
    done = run(
        pytester, "-q", "--collect-only", "--dsa-fixtures", "*.plateau,*.gaussian", "--dsa-presets", "deepseek-v4"
    )
    done.stdout.fnmatch_lines(["*test_both: `fixtures` and `presets` should leave a fixture*"])


def test_full_size_fixtures_are_asked_for(pytester: pytest.Pytester) -> None:
    repository(pytester, CHECK.format(kernel="Right()"))
    done = run(pytester, "-q", "--collect-only", "--dsa-full", "--dsa-fixtures", "*.full")
    assert "test_my_kernel[sglang-v4-fp8.fp8.gaussian.full]" in collected(done)
    done = run(pytester, "--dsa-fixtures", "*.full")
    assert done.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dsa-fixtures", "no.such.*"), "`fixtures` should match some of *; got 'no.such.*'"),
        (("--dsa-presets", "sglang"), "`presets` should match some of *; got 'sglang'"),
        (("--dsa-timeout", "0"), "`--dsa-timeout` should be positive, got 0"),
        (("--dsa-known-failures", "absent.toml"), "`--dsa-known-failures` should be a readable TOML file*"),
    ],
)
def test_options_that_cannot_be_meant(pytester: pytest.Pytester, options: tuple[str, ...], message: str) -> None:
    done = pytester.runpytest_inprocess(*options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{message}"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("dsa('x')", "`pytest.mark.dsa(...)` should have arguments by name only*"),
        ("dsa(fixture='x')", "`pytest.mark.dsa(fixture=...)` should be one of ('fixtures', *"),
        ("dsa(presets=3)", "`pytest.mark.dsa(presets=...)` should be a name or a list of names, got 3"),
        ("dsa(allow_vacuous=1)", "`pytest.mark.dsa(allow_vacuous=...)` should be True or False, got 1"),
        ("dsa(presets='none')", "`presets` should match some of *; got 'none'"),
    ],
)
def test_markers_that_cannot_be_meant(pytester: pytest.Pytester, marker: str, message: str) -> None:
    repository(pytester, f"@pytest.mark.{marker}\ndef test_my_kernel(dsa_case):\n    pass\n")
    done = run(pytester)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([f"*test_my_kernel: {message}"])


def test_vacuous_comparisons_fail_unless_marked(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        from dataclasses import replace

        def check(case):
            inputs = case.inputs
            assert_crosscheck(Right(), replace(inputs, geometry=replace(inputs.geometry, topk=64)), repeat=0)

        def test_strict(dsa_case):
            check(dsa_case)

        @pytest.mark.dsa(allow_vacuous=True)
        def test_marked(dsa_case):
            check(dsa_case)
        """,
    )
    done = run(pytester, "-v")
    done.assert_outcomes(failed=1, passed=1)
    done.stdout.fnmatch_lines(["*test_marked* PASSED*"])
    done.stdout.re_match_lines(
        [
            r"E .*my-kernel: VACUOUS - the inputs could not have shown a fault",
            r"E +undecided: +selection: k = 64 selects every visible key of every row",
            r"E +to allow it: +@pytest.mark.dsa\(allow_vacuous=True\)",
            r"E +replay: +python -m pytest",
        ]
    )


def test_skips_that_nobody_asked_for_fail(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        @pytest.fixture
        def device():
            pytest.skip("no device")

        def test_inside(dsa_case):
            pytest.importorskip("a_module_that_nobody_has")

        def test_in_a_fixture(dsa_case, device):
            pass

        @pytest.mark.dsa
        def test_without_a_fixture():
            pytest.skip("not today")

        @pytest.mark.skipif(True, reason="asked for")
        def test_asked_for(dsa_case):
            pass

        def test_of_another_kind():
            pytest.skip("no cross-check")
        """,
    )
    done = run(pytester)
    done.assert_outcomes(failed=2, errors=1, skipped=2)
    done.stdout.fnmatch_lines_random(
        [
            "*test_inside* was skipped, which nobody asked for: *a_module_that_nobody_has*",
            "*test_in_a_fixture* was skipped, which nobody asked for: *no device",
        ]
    )


def test_unsupported_cases_fail_unless_marked(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        from dsa_crosscheck.compare.call import Unsupported

        def refuse(conventions):
            raise Unsupported(f"no kernel for {conventions.key.format}")

        def test_strict(dsa_case):
            assert_crosscheck(refuse, dsa_case)

        @pytest.mark.dsa(allow_unsupported=True)
        def test_marked(dsa_case):
            assert_crosscheck(refuse, dsa_case)

        @pytest.mark.dsa(allow_unsupported=True)
        def test_marked_for_something_else(dsa_case):
            pytest.skip("no compiler")
        """,
    )
    done = run(pytester, "-rs")
    done.assert_outcomes(failed=2, skipped=1)
    done.stdout.fnmatch_lines_random(
        [
            f"E *refuse cannot run {FIXTURE}: no kernel for fp8-e4m3fn",
            "SKIPPED * no kernel for fp8-e4m3fn",
            "*test_marked_for_something_else* was skipped, which nobody asked for: *no compiler",
        ]
    )


def test_known_failures_are_expected_until_they_pass(pytester: pytest.Pytester) -> None:
    repository(
        pytester,
        """
        def test_wrong(dsa_case):
            assert_crosscheck(Wrong(), dsa_case, repeat=0)

        def test_repaired(dsa_case):
            assert_crosscheck(Right(), dsa_case, repeat=0)

        def test_broken_otherwise(dsa_case):
            raise OSError("not a wrong kernel")
        """,
    )
    link = "https://example.org/issues/7"
    pytester.path.joinpath("known.toml").write_text(
        f"""known_failures = [
            {{ case = "{FIXTURE}", reason = "column 3", link = "{link}" }},
            {{ case = "test_kernel.py::test_wrong[{SECOND}]", reason = "column 3 too", link = "{link}" }},
        ]"""
    )
    known = ("--dsa-known-failures", "known.toml")
    done = run(pytester, "-rx", "--dsa-fixtures", FIXTURE, *known)
    done.assert_outcomes(xfailed=1, failed=2)
    done.stdout.fnmatch_lines_random(
        [
            f"*XFAIL*test_wrong*column 3 ({link})*",
            f"*XPASS(strict)*column 3 ({link}); when it passes, take it out of known.toml",
        ]
    )
    done = run(pytester, "-k", "test_wrong", "--dsa-fixtures", SECOND, *known)
    done.assert_outcomes(xfailed=1)


def test_a_known_failure_of_no_fixture_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text('known_failures = [{ case = "sglang", reason = "r", link = "l" }]')
    done = pytester.runpytest_inprocess("--dsa-known-failures", "known.toml")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*known.toml: `case` should be a node id or one of *; got 'sglang'"])

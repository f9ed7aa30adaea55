"""The pytest plug-in ``dsa_crosscheck``. It loads in every test run, so it imports nothing heavy."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dsa_crosscheck.compare.testing.marker import DECLARATION, FIXTURE, MARKER, is_crosscheck, marker_of
from dsa_crosscheck.compare.testing.settings import TIMEOUT, Settings, settings_of_a_test

if TYPE_CHECKING:
    from dsa_crosscheck.compare.testing.case import Case
    from dsa_crosscheck.compare.testing.fixture_choice import Locate
    from dsa_crosscheck.compare.testing.known_failures import KnownFailure

_KNOWN = pytest.StashKey[tuple["KnownFailure", ...]]()
_FIXTURES = pytest.StashKey[dict[str, "Locate"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; each begins with ``--dsa`` or ``--no-dsa``."""
    option = parser.getgroup("dsa-crosscheck", "cross-checks of sparse-attention indexers").addoption
    option(
        "--dsa-fixtures",
        metavar="NAMES",
        default="",
        help="fixtures to run: names or patterns (preset.format.case), separated by commas (default: all)",
    )
    option(
        "--dsa-presets",
        metavar="NAMES",
        default="",
        help="presets whose fixtures to run, separated by commas (default: all)",
    )
    option("--dsa-full", action="store_true", help="run the full-size fixtures too, made where the cache has none")
    option(
        "--dsa-isolate",
        dest="dsa_isolate",
        action="store_const",
        const=True,
        help="compare every candidate in a process of its own (default: candidates on a GPU)",
    )
    option("--no-dsa-isolate", dest="dsa_isolate", action="store_const", const=False, help="compare none so")
    option(
        "--dsa-timeout",
        metavar="SECONDS",
        type=float,
        default=TIMEOUT,
        help="time of an isolated comparison (default: %(default)g)",
    )
    option("--dsa-known-failures", metavar="FILE", help="TOML file of failures that are expected")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; reject options that can't be meant."""
    config.addinivalue_line("markers", DECLARATION)
    if config.option.dsa_timeout <= 0:
        raise pytest.UsageError(f"`--dsa-timeout` should be positive, got {config.option.dsa_timeout:g}")
    try:
        config.stash[_KNOWN] = _known_failures(config)
        if config.option.dsa_fixtures or config.option.dsa_presets:
            _chosen(config, (), ())
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_unconfigure() -> None:
    """End the process of isolated comparisons, where there is one."""
    isolation = sys.modules.get("dsa_crosscheck.compare.testing.isolation")
    if isolation is not None:
        isolation.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each fixture that the options and the marker leave."""
    if FIXTURE not in metafunc.fixturenames:
        return
    try:
        marker = marker_of(metafunc.definition)
        names = list(_chosen(metafunc.config, marker.fixtures, marker.presets))
    except ValueError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
    metafunc.parametrize(FIXTURE, names, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every cross-check, so that ``-m dsa`` selects them, and the failures that are expected."""
    known = {entry.case: entry for entry in config.stash[_KNOWN]}
    for item in items:
        if not is_crosscheck(item):
            continue
        item.add_marker(MARKER)
        for case in (item.nodeid, _fixture_name(item)):
            if case in known:
                entry = known[case]
                text = (
                    f"{entry.reason} ({entry.link}); when it passes, take it out of {config.option.dsa_known_failures}"
                )
                item.add_marker(pytest.mark.xfail(reason=text, raises=AssertionError, strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The test's settings, for as long as it runs."""
    if not is_crosscheck(item):
        return (yield)
    with settings_of_a_test(_settings(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip that nobody asked for is a failure: a check that did not run shows nothing."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and is_crosscheck(item):
        from dsa_crosscheck.compare.testing.skips import asked_for

        if not asked_for(item, call):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} was skipped, which nobody asked for: {reason}\n"
                "A cross-check that does not run shows nothing. Mark it with skip or skipif, or leave it out."
            )
    return report


@pytest.fixture
def dsa_case(request: pytest.FixtureRequest) -> Case:
    """A golden fixture: inputs, conventions, and every stage of the reference on them."""
    from dsa_crosscheck.compare.testing.case import Case

    return Case(request.param, _available(request.config)[request.param])


def _settings(item: pytest.Item) -> Settings:
    option = item.config.option
    try:
        marker = marker_of(item)
    except ValueError as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from error
    return Settings(
        replay=_replay(item),
        isolate=option.dsa_isolate,
        timeout=option.dsa_timeout,
        allow_vacuous=marker.allow_vacuous,
        allow_unsupported=marker.allow_unsupported,
    )


def _replay(item: pytest.Item) -> str:
    """The command that runs one test again, from the same folder."""
    place = os.path.relpath(item.path, item.config.invocation_params.dir)
    _, _, inside = item.nodeid.partition("::")
    words = ["python", "-m", "pytest", f"{place}::{inside}"]
    option = item.config.option
    words += ["--dsa-full"] if option.dsa_full else []
    words += [] if option.dsa_isolate is None else ["--dsa-isolate" if option.dsa_isolate else "--no-dsa-isolate"]
    words += [] if option.dsa_timeout == TIMEOUT else ["--dsa-timeout", f"{option.dsa_timeout:g}"]
    return shlex.join(words)


def _known_failures(config: pytest.Config) -> tuple[KnownFailure, ...]:
    if config.option.dsa_known_failures is None:
        return ()
    from dsa_crosscheck.compare.testing.known_failures import read_known_failures

    path = Path(config.option.dsa_known_failures)
    entries = read_known_failures(path)
    names = _available(config)
    for entry in entries:
        if "::" not in entry.case and entry.case not in names:
            raise ValueError(f"{path}: `case` should be a node id or one of {', '.join(names)}; got {entry.case!r}")
    return entries


def _available(config: pytest.Config) -> dict[str, Locate]:
    if _FIXTURES not in config.stash:
        from dsa_crosscheck.compare.testing.fixture_choice import available

        config.stash[_FIXTURES] = available(full=config.option.dsa_full)
    return config.stash[_FIXTURES]


def _chosen(config: pytest.Config, fixtures: tuple[str, ...], presets: tuple[str, ...]) -> dict[str, Locate]:
    """What the options and a marker leave."""
    from dsa_crosscheck.compare.testing.fixture_choice import chosen

    option = config.option
    patterns, wanted = _names(option.dsa_fixtures), _names(option.dsa_presets)
    return chosen(_available(config), (patterns, fixtures), (wanted, presets))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _fixture_name(item: pytest.Item) -> str:
    """The fixture of a test that has one, else an empty text."""
    call = getattr(item, "callspec", None)
    return "" if call is None else str(call.params.get(FIXTURE, ""))

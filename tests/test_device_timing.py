"""How a replay is timed, with stand-ins for the graph and for the events."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dsa_crosscheck.compare.device import timing


def made_replay(monkeypatch: pytest.MonkeyPatch, done: list[object], calls: int) -> timing.Replay:
    """A replay of so many calls that takes 6 s, and tells what is done in ``done``."""

    def seconds(work: Callable[[], object], meanwhile: Callable[[], object]) -> float:
        before = len(done)
        work()
        meanwhile()
        return 6.0 * done[before:].count("the graph")

    monkeypatch.setattr(timing, "event_seconds", seconds)
    monkeypatch.setattr(timing.time, "sleep", lambda pause: done.append(f"sleep {pause}"))
    one = timing.Replay.__new__(timing.Replay)
    one._graph = SimpleNamespace(replay=lambda: done.append("the graph"))
    one.calls = calls
    return one


def test_a_replay_is_timed_after_a_rest_and_an_untimed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    assert made_replay(monkeypatch, done, 3).rested_seconds() == 2.0
    assert done == [f"sleep {timing.REST_SECONDS}", "the graph", "the graph"]


def test_a_load_is_a_run_of_replays_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    one = made_replay(monkeypatch, done, 2)
    assert one.loaded_seconds(4, lambda: done.append("asked")) == 3.0
    assert done == ["the graph"] * 4 + ["asked"]


@pytest.mark.parametrize(
    ("calls", "seconds", "rounds"),
    [(175, 1e-3, 1), (3, 1e-4, 3), (2, 6e-4, 4), (2, 0.034, 1), (8, 1e-6, 1), (1, 1e-6, 8)],
)
def test_a_replay_is_long_and_not_longer(calls: int, seconds: float, rounds: int) -> None:
    assert timing.rounds_of(calls, seconds) == rounds

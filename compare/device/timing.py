"""Times of work on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch

TURNS = 9
COPY_BYTES = 4 << 30
LEAST_CALLS = 8
LEAST_SECONDS = 2e-3
"""A replay has so many calls, or takes so long: far longer than a timer's resolution."""
REST_SECONDS = 0.03
"""A GPU at its power limit lowers its clock: who is timed right after a neighbour's load is timed at the clock which
that has left. After a rest everyone starts alike."""


class Replay:
    """A CUDA graph of all of ``work``, several times over if it is short.

    Several callables over different memory keep the inputs out of the cache: together they should
    exceed it. Each is called twice before the capture. Launch overhead from Python is not in the time.
    """

    def __init__(self, work: Sequence[Callable[[], object]]) -> None:
        self._work = work  # a graph does not keep the memory alive that its launches use

        def each() -> None:
            for call in work:
                call()

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # type: ignore[no-untyped-call]
            each()
            torch.cuda.synchronize()
            start = time.perf_counter()
            each()
            torch.cuda.synchronize()
            once = time.perf_counter() - start
        rounds = rounds_of(len(work), once)
        self.calls = rounds * len(work)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(rounds):
                each()
        self.seconds()

    def rested_seconds(self) -> float:
        """Seconds of one call after ``REST_SECONDS`` without work and one replay that is not timed."""
        time.sleep(REST_SECONDS)
        self.seconds()
        return self.seconds()

    def seconds(self) -> float:
        """Replay once; seconds of one call."""
        return self.loaded_seconds(1)

    def loaded_seconds(self, replays: int, meanwhile: Callable[[], object] = lambda: None) -> float:
        """Replay so many times without a pause; seconds of one call. ``meanwhile`` runs on the host, once all wait."""

        def work() -> None:
            for _ in range(replays):
                self._graph.replay()

        return event_seconds(work, meanwhile) / self.calls / replays


def rounds_of(calls: int, seconds: float) -> int:
    """How often a replay should go through ``calls`` different ones that together take about ``seconds``."""
    return max(1, min(-(-LEAST_CALLS // calls), math.ceil(LEAST_SECONDS / seconds)))


def event_seconds(work: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> float:
    """Seconds between two events around ``work`` on the current stream; ``meanwhile`` runs before they are awaited."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    stop.record()
    meanwhile()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1e3


def in_turns(replays: Mapping[str, Replay], turns: int = TURNS) -> dict[str, list[float]]:
    """Seconds of every turn, in which each of ``replays`` rests and is timed once: all see the same machine."""
    seconds: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(turns):
        for name, replay in replays.items():
            seconds[name].append(replay.rested_seconds())
    return seconds


def copy_bytes_per_second() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    # One launch takes milliseconds: no graph is needed, and copies in one are slower.
    times = [event_seconds(lambda: target.copy_(source)) for _ in range(TURNS)]
    return 2 * COPY_BYTES / sorted(times)[len(times) // 2]

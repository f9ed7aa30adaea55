"""Times of work on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

TURNS = 9
COPY_BYTES = 4 << 30
LEAST_CALLS = 8
"""Calls in one replay, at least: a replay should take far longer than a timer's resolution."""
SETTLE_SECONDS = 0.02
"""A GPU lowers its clock under load, and takes milliseconds to raise it: who is timed right after a neighbour's
load is timed at the neighbour's clock."""


class Replay:
    """A CUDA graph of all of ``work``, several times over if it is short.

    Several callables over different memory keep the inputs out of the cache: together they should
    exceed it. Each is called twice before the capture. Launch overhead from Python is not in the time.
    """

    def __init__(self, work: Sequence[Callable[[], object]]) -> None:
        self._work = work  # a graph does not keep the memory alive that its launches use
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # type: ignore[no-untyped-call]
            for call in [*work, *work]:
                call()
        torch.cuda.synchronize()
        rounds = -(-LEAST_CALLS // len(work))
        self.calls = rounds * len(work)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(rounds):
                for call in work:
                    call()
        self.seconds()

    def settle(self) -> None:
        """Replay, untimed, for ``SETTLE_SECONDS`` or once: what follows is timed at the clock that it makes itself."""
        spent = 0.0
        while spent < SETTLE_SECONDS:
            spent += event_seconds(self._graph.replay)

    def seconds(self) -> float:
        """Replay once; seconds of one call."""
        return event_seconds(self._graph.replay) / self.calls


def event_seconds(work: Callable[[], object]) -> float:
    """Seconds between two events around ``work`` on the current stream."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) / 1e3


def in_turns(replays: Mapping[str, Replay], turns: int = TURNS) -> dict[str, list[float]]:
    """Seconds of every turn, in which each of ``replays`` settles and is timed once: all see the same machine."""
    seconds: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(turns):
        for name, replay in replays.items():
            replay.settle()
            seconds[name].append(replay.seconds())
    return seconds


def copy_bytes_per_second() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    # One launch takes milliseconds: no graph is needed, and copies in one are slower.
    times = [event_seconds(lambda: target.copy_(source)) for _ in range(TURNS)]
    return 2 * COPY_BYTES / sorted(times)[len(times) // 2]

"""Times of work on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

REPLAYS = 9
COPY_BYTES = 4 << 30


def graph_seconds(work: Sequence[Callable[[], object]], rounds: int = 4) -> float:
    """Median seconds of one call, by replaying a CUDA graph of ``rounds`` times all of ``work``.

    Several callables over different memory keep the inputs out of the cache: together they should
    exceed it. Each is called twice before the capture. Launch overhead from Python is not in the time.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # type: ignore[no-untyped-call]
        for call in [*work, *work]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in work:
                call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / (rounds * len(work)))
    return sorted(times)[len(times) // 2]


def copy_bytes_per_second() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(REPLAYS):  # one launch takes milliseconds: no graph is needed, and copies in one are slower
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    return 2 * COPY_BYTES / sorted(times)[len(times) // 2]

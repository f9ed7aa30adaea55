"""Running the cells of a sweep: here, in local processes, or on a dask cluster."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any

import xarray as xr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dsa_crosscheck.compare.studies.cell_store import CellStore, Failure

ATTEMPTS = 3
"""Processes that a cell may lose before it counts as the cause."""

Function = Callable[[Any], xr.Dataset]


def run_cells(
    cells: Sequence[Any],
    function: Function,
    store: CellStore,
    *,
    workers: int = 1,
    scheduler: str | None = None,
) -> list[Failure]:
    """Put ``function(cell)`` of every cell that isn't done into ``store``; the failures of ``cells``.

    A cell that raises is recorded with its traceback and the others go on; the next run tries it again.
    Stopping at any time (Ctrl-C, a killed process or machine) loses only the cells in progress.
    ``function`` must be importable by name in other processes.

    ``workers`` local processes; 1 runs in this one. ``scheduler``: address of a dask.distributed
    scheduler, whose workers see the store's folder. A cell whose process dies is tried again, and
    fails after ``ATTEMPTS`` deaths. ``ValueError`` for fewer than one worker, both a scheduler and
    workers, or a cell given twice; ``ImportError`` for a scheduler without dask.distributed.
    """
    if workers < 1:
        raise ValueError(f"`run_cells(workers=...)` should be at least 1, got {workers}")
    if scheduler is not None and workers != 1:
        raise ValueError(f"`run_cells(workers=...)` should be left out with a scheduler, got {workers}")
    if len({repr(cell) for cell in cells}) != len(cells):
        raise ValueError("`run_cells(cells=...)` should name each cell once, got one twice")
    left = [cell for cell in cells if not store.is_done(cell)]
    if scheduler is not None:
        finished = _on_cluster(left, function, store, scheduler)
    elif workers == 1:
        finished = _here(left, function, store)
    else:
        finished = _in_processes(left, function, store, workers)
    with _progress() as progress:
        task = progress.add_task("cells", total=len(cells), completed=len(cells) - len(left), failed=0)
        failed = 0
        for good in finished:
            failed += not good
            progress.update(task, advance=1, failed=failed)
    return store.failures(cells)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _one(cell: Any, function: Function, store: CellStore) -> bool:
    """Run one cell and keep what comes of it; whether it succeeded."""
    try:
        store.put(cell, function(cell))
    except Exception:
        store.fail(cell, traceback.format_exc())
        return False
    return True


def _here(cells: list[Any], function: Function, store: CellStore) -> Iterator[bool]:
    for cell in cells:
        yield _one(cell, function, store)


def _in_processes(cells: list[Any], function: Function, store: CellStore, workers: int) -> Iterator[bool]:
    """As many cells at a time as workers. When a process dies, the cells then running go on one by one:
    the next death has one cell as its cause."""
    queue = iter(cells)
    suspects: list[Any] = []
    deaths: dict[str, int] = {}
    while True:
        # JAX's threads do not survive a fork.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            running: dict[Future[bool], Any] = {}
            try:
                while True:
                    if not suspects:
                        for cell in islice(queue, workers - len(running)):
                            running[pool.submit(_one, cell, function, store)] = cell
                    elif not running:
                        cell = suspects.pop(0)
                        running[pool.submit(_one, cell, function, store)] = cell
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        del running[future]
                        yield result
            except BrokenProcessPool as error:
                for cell in running.values():
                    deaths[repr(cell)] = deaths.get(repr(cell), 0) + 1
                    if store.is_done(cell):
                        yield True
                    elif deaths[repr(cell)] < ATTEMPTS:
                        suspects.append(cell)
                    else:
                        store.fail(cell, f"the process that ran this cell died {ATTEMPTS} times: {error}")
                        yield False


def _on_cluster(cells: list[Any], function: Function, store: CellStore, scheduler: str) -> Iterator[bool]:
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ImportError(f"a scheduler needs the extra dsa-crosscheck[distributed]: {error}") from error
    with Client(scheduler) as client:
        # Not pure: the result lies in the store, and a value that dask kept from an earlier run says nothing of it.
        futures = {client.submit(_one, cell, function, store, pure=False): cell for cell in cells}
        for future in as_completed(futures):
            lost = future.exception()
            if lost is not None:
                store.fail(futures[future], "".join(traceback.format_exception(lost)))
            yield lost is None and bool(future.result())

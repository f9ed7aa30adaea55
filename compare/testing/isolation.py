"""Comparisons in a process of their own, so that a crash or a hang costs one case."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.testing.comparison import Comparison

START_SECONDS = 300.0
"""Time that a new process may take for its imports."""
GRACE_SECONDS = 5.0
"""Time that a process has to write where it hangs, before it is killed."""
TAIL = 30
"""Lines of a dead process's output that are shown."""


class CandidateLost(Exception):
    """The process of a comparison died or hung: ``what`` happened, in which ``stage``, its last ``output``."""

    def __init__(self, what: str, stage: str, output: str) -> None:
        super().__init__(f"{what} in stage {stage}")
        self.what, self.stage, self.output = what, stage, output


@dataclass(frozen=True)
class Job:
    """What a process is sent: the path of imports, where the candidate's module lies, the pickled comparison."""

    path: list[str]
    module: str
    file: str | None
    comparison: bytes


class Worker:
    """One process that makes comparisons, one after another, with everything imported beforehand."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self._connection: Connection[Any, Any] = ours
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        # -P: nothing that lies in the working directory may shadow what the process imports.
        command = [sys.executable, "-P", "-m", "dsa_crosscheck.compare.testing.worker", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._stage = "starting"
        self._next(time.monotonic() + START_SECONDS)

    def run(self, job: Job, timeout: float) -> tuple[str, Any]:
        """The kind of answer and the answer; ``CandidateLost`` when the process dies or takes too long."""
        self._stage = "making the candidate"
        self._output.seek(0)
        self._output.truncate()
        deadline = time.monotonic() + timeout
        try:
            self._connection.send(job)
        except OSError:
            raise self._lost(self._death()) from None
        while True:
            kind, value = self._next(deadline, timeout)
            if kind != "stage":
                print(self._written(), end="")
                return kind, value
            self._stage = value

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._output.close()

    def _next(self, deadline: float, timeout: float = START_SECONDS) -> tuple[str, Any]:
        try:
            if self._connection.poll(max(0.0, deadline - time.monotonic())):
                return self._connection.recv()
        except (EOFError, OSError):
            raise self._lost(self._death()) from None
        # The process writes its stack when it is told to abort, even from native code.
        self._process.send_signal(signal.SIGABRT)
        self._death()
        raise self._lost(f"hung: no result within {timeout:g} s")

    def _death(self) -> str:
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code >= 0:
            return f"ended its process with exit code {code}"
        return f"crashed: {signal.Signals(-code).name}"

    def _written(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _lost(self, what: str) -> CandidateLost:
        lines = [line for line in self._written().splitlines() if not line.startswith("Extension modules:")]
        output = "\n".join(lines[-TAIL:])
        return CandidateLost(what, self._stage, output)


_worker: Worker | None = None


def run_isolated(comparison: Comparison, timeout: float) -> Report:
    """The report of a comparison that another process makes.

    The process serves many comparisons; one that fails or raises takes its process with it, since what
    a wrong kernel did to the device or to memory must not reach the next. Raises ``CandidateLost``,
    ``Unsupported`` and ``ValueError`` as the comparison does, ``RuntimeError`` with the other process's
    traceback for any other exception, and ``ValueError`` for a candidate that can't be pickled.
    """
    global _worker
    job = _job(comparison)
    if _worker is None:
        _worker = Worker()
    try:
        kind, value = _worker.run(job, timeout)
    except BaseException:
        close()
        raise
    if kind == "report" and not value.verdict.failed:
        return value
    close()
    if kind == "report":
        return value
    error = {"unsupported": Unsupported, "usage": ValueError}.get(kind, RuntimeError)
    raise error(value)


def close() -> None:
    """End the process, if there is one."""
    global _worker
    if _worker is not None:
        worker, _worker = _worker, None
        worker.close()


def _job(comparison: Comparison) -> Job:
    candidate = comparison.candidate
    try:
        pickled = pickle.dumps(comparison)
    except Exception as error:
        raise ValueError(
            "`assert_crosscheck(candidate=...)` should be picklable to be isolated: an importable class or function, "
            f"an object of one, or a name; got {candidate!r}: {type(error).__name__}: {error}"
        ) from error
    module = str(getattr(candidate, "__module__", "builtins"))
    return Job(list(sys.path), module, getattr(sys.modules.get(module), "__file__", None), pickled)

"""The process that ``isolation`` starts: receives comparisons, sends stages as they begin and the report."""

from __future__ import annotations

import faulthandler
import pickle
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing.connection import Connection
from typing import Any

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.testing.comparison import Comparison
from dsa_crosscheck.compare.testing.isolation import Job


def main(handle: int) -> None:
    """Serve until the other end closes the connection."""
    faulthandler.enable(all_threads=False)
    connection: Connection[Any, Any] = Connection(handle)
    connection.send(("ready", None))
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(_answer(job, connection))


def _answer(job: Job, connection: Connection[Any, Any]) -> tuple[str, Any]:
    try:
        _import_module_of_candidate(job)
        comparison: Comparison = pickle.loads(job.comparison)
        return "report", comparison.run(lambda stage: connection.send(("stage", stage)))
    except Unsupported as error:
        return "unsupported", str(error)
    except ValueError as error:
        return "usage", str(error)
    # A module that exits must not look like a kernel that crashes.
    except (Exception, SystemExit):
        return "raised", f"in the process of the comparison:\n{traceback.format_exc()}"
    finally:
        sys.stdout.flush()


def _import_module_of_candidate(job: Job) -> None:
    """A test module is imported by its name, or from its file where the test runner did not put it on the path."""
    sys.path[:] = job.path
    try:
        import_module(job.module)
    except ModuleNotFoundError as error:
        if job.file is None or error.name != job.module.split(".")[0]:
            raise
        spec = spec_from_file_location(job.module, job.file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[job.module] = module
        spec.loader.exec_module(module)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""The command line. Parsing imports neither JAX nor torch: a command imports what it runs."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from dsa_crosscheck.compare.commands import compare, device, explain, fixtures, mutants, report, study
from dsa_crosscheck.cuda_impl.build import BuildError

USAGE_ERROR = 2
COMMANDS = (compare, explain, fixtures, mutants, study, report, device)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 pass, 1 fail, 2 usage or environment, 3 nothing decided.

    An unexpected exception also ends with 2, after its traceback, and so does output that nobody reads
    to its end: 1 must mean that a candidate failed.
    """
    args = _parser().parse_args(argv)
    try:
        with _working_directory_last():
            code = int(args.run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough; Python would complain again when it flushes at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, BuildError) as error:
        print(f"dsa-crosscheck: error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("dsa-crosscheck: stopped", file=sys.stderr)
    except Exception:
        traceback.print_exc()
        print("dsa-crosscheck: error: unexpected failure, see above", file=sys.stderr)
    return USAGE_ERROR


@contextmanager
def _working_directory_last() -> Iterator[None]:
    """For what a candidate imports when it is called; behind the rest, so that it shadows no package of ours."""
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dsa-crosscheck",
        description="Cross-check DeepSeek sparse-attention indexer kernels against a float64 reference.",
        epilog="exit codes: 0 pass, 1 fail, 2 usage or environment error, 3 nothing decided",
    )
    parser.add_argument("--version", action="version", version=version("dsa-crosscheck"))
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser

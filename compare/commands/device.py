"""``dsa-crosscheck device``: what the kernels are on this GPU, measured and recorded; `study cost` has their times."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsa_crosscheck.compare.names import names_of

Head = dict[str, Any]
Measured = tuple[dict[str, Any], str, int]


@dataclass(frozen=True)
class Fact:
    """``measure(args, top)`` returns the record's members below its head ``top``, their text, and the exit code.

    ``options`` declares options beside ``--out`` and ``--commit``.
    """

    name: str
    what: str
    measure: Callable[[argparse.Namespace, Head], Measured]
    options: Callable[[argparse.ArgumentParser], object] | None = None


def _memory(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import memory

    found = memory.measure_all()
    return found, memory.render(found), 0


def _candidates(default: str) -> Callable[[argparse.ArgumentParser], object]:
    return lambda parser: parser.add_argument(
        "--candidate", default=default, metavar="NAMES", help="with commas (default: %(default)s)"
    )


def _accumulator(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import accumulator

    records = accumulator.measure(names_of("--candidate", args.candidate))
    return {"accumulator": records}, accumulator.render(records), 0


def _power(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import power
    from dsa_crosscheck.compare.device.contenders import contenders_named

    found = power.measure(contenders_named(names_of("--candidate", args.candidate)))
    return found, power.render(found), 0


def _profile(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import profile

    found = profile.measure()
    return {"profile": found}, profile.render(found), 0


def _sanitizer(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import sanitizer

    found = sanitizer.measure()
    failed = any(not tool["passed"] for tool in found["tools"])
    return {"sanitizer": found}, sanitizer.render(found), 1 if failed else 0


def _comparison_options(parser: argparse.ArgumentParser) -> None:
    _candidates("cuda,deepgemm,sglang")(parser)
    parser.add_argument("--context", metavar="TOKENS", help="contexts, with commas (default: all that have cases)")


def _comparisons(args: argparse.Namespace, top: Head) -> Measured:
    from dsa_crosscheck.compare.device import comparisons

    contexts = tuple(comparisons.CASES)
    if args.context is not None:
        given = names_of("--context", args.context)
        if not all(one.isdecimal() for one in given):
            raise ValueError(f"`--context` should be numbers with commas, got {args.context!r}")
        contexts = tuple(int(one) for one in given)
    from dsa_crosscheck.compare.device import record

    records = comparisons.measure(
        names_of("--candidate", args.candidate),
        contexts,
        done=record.resumed(args.out, top, "compare"),
        keep=lambda so_far: record.write(args.out, {**top, "compare": so_far}),
    )
    return {"compare": records}, comparisons.render(records), 1 if comparisons.failed(records) else 0


FACTS = (
    Fact("compare", "our kernels and others cross-checked over cases and contexts", _comparisons, _comparison_options),
    Fact("memory", "bytes that one scoring call takes, ours and unfused", _memory),
    Fact("accumulator", "how many bits a scorer keeps of its sums", _accumulator, _candidates("cuda")),
    Fact(
        "power",
        "scoring from rest and under load, with the GPU's clock and power",
        _power,
        _candidates("cuda,cuda-mma,deepgemm"),
    ),
    Fact("profile", "how busy each kernel keeps each unit of the GPU, by its profiler", _profile),
    Fact("sanitizer", "every kernel under compute-sanitizer, with planted faults that it must find", _sanitizer),
)


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command, with a subcommand for each fact."""
    parser = commands.add_parser(
        "device", help="what the kernels are on this GPU, but for their times: measured and recorded"
    )
    names = parser.add_subparsers(title="facts", required=True, metavar="FACT")
    for fact in FACTS:
        one = names.add_parser(fact.name, help=fact.what, description=fact.what)
        one.add_argument("--out", type=Path, required=True, metavar="PATH", help="JSON file to write")
        one.add_argument("--commit", default="", help="what is measured, recorded as given")
        if fact.options is not None:
            fact.options(one)
        one.set_defaults(run=run, fact=fact)


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the record; 1 if the measurement is a check that failed."""
    from dsa_crosscheck.compare.device.record import head, need_gpu, write
    from dsa_crosscheck.compare.files import check_target

    check_target("--out", args.out)
    need_gpu(f"`device {args.fact.name}`")
    top = head(args.commit)  # first: what has no head is not worth measuring
    members, text, code = args.fact.measure(args, top)
    print(text)
    write(args.out, {**top, **members})
    return code

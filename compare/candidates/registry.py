"""Finding a candidate by name: built in, an installed plug-in, or ``package.module:object``."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dsa_crosscheck.reference.conventions import Conventions

GROUP = "dsa_crosscheck.candidates"

BUILT_IN: dict[str, str] = {
    "emulated": "dsa_crosscheck.compare.candidates.kernels:Emulated",
    "cuda": "dsa_crosscheck.compare.candidates.kernels:Cuda",
    "cuda-mma": "dsa_crosscheck.compare.candidates.kernels:CudaMma",
    "deepgemm": "dsa_crosscheck.compare.candidates.deepgemm:DeepGemm",
    "unfused": "dsa_crosscheck.compare.candidates.unfused:Unfused",
    "sglang": "dsa_crosscheck.compare.candidates.sglang:Sglang",
    "transformers-v4": "dsa_crosscheck.compare.candidates.transformers_v4:TransformersV4",
}
"""Built-in candidates: classes called with the conventions to follow, or None for their own."""
ON_GPU = ("cuda", "cuda-mma", "deepgemm", "sglang")
"""Those of them that run on a GPU."""


class CandidateError(ValueError):
    """No candidate of that name, or it cannot be loaded."""


def load(name: str, conventions: Conventions | None) -> Any:
    """The candidate called ``name``.

    A class or function is called: with ``conventions`` (None = its own) if it takes an argument,
    else with nothing; any other object is used as it is. Entry points of the group
    ``dsa_crosscheck.candidates`` are imported only when named, so a broken plug-in harms nobody
    else. ``package.module:object`` is looked for in the working directory first. ``CandidateError``
    tells the known names, why loading one failed, or what of ``conventions`` it does not support. A
    built-in name cannot be taken over, and one that two plug-ins share is an error for those who ask
    for it.
    """
    from dsa_crosscheck.compare.call import Unsupported

    target, anyones = _target(name)
    module, _, attribute = target.partition(":")
    try:
        with _working_directory_first() if anyones else nullcontext():
            thing: Any = import_module(module)
            for part in attribute.split("."):
                thing = getattr(thing, part)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                make: Callable[..., Any] = thing
                thing = make(conventions) if inspect.signature(make).parameters else make()
    except Unsupported as error:
        named = f"candidate {name!r}" in str(error)
        raise CandidateError(str(error) if named else f"candidate {name!r} does not support this: {error}") from error
    # A module that exits would otherwise choose the exit code of the comparison.
    except (Exception, SystemExit) as error:
        raise CandidateError(f"candidate {name!r} ({target}) does not load: {type(error).__name__}: {error}") from error
    for required in ("name", "conventions"):
        if not hasattr(thing, required):
            raise CandidateError(f"candidate {name!r} should have an attribute `{required}`, got {thing!r}")
    return thing


def _target(name: str) -> tuple[str, bool]:
    """``module:object`` of a name, and whether the name itself was that."""
    if name in BUILT_IN:
        return BUILT_IN[name], False
    found = plugins()
    offers = found.get(name, [])
    if len(offers) > 1:
        raise CandidateError(f"`--candidate` {name!r} is the name of several plug-ins: {', '.join(offers)}")
    if offers:
        return offers[0], False
    if ":" in name:
        return name, True
    known = ", ".join([*BUILT_IN, *sorted(found)])
    raise CandidateError(f"`--candidate` should be one of {known}, or package.module:object; got {name!r}")


def plugins() -> dict[str, list[str]]:
    """What installed plug-ins offer, ``package.module:object`` by name, not imported."""
    found: dict[str, list[str]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in BUILT_IN:
            found.setdefault(entry.name, []).append(f"{entry.module}:{entry.attr}")
    return found


@contextmanager
def _working_directory_first() -> Iterator[None]:
    """What ``python -m`` does and a console script does not."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)

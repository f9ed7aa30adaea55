"""The module that candidate ``deepgemm`` calls: found, held to what is called of it, and who provides it."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from dsa_crosscheck.compare.call import Unsupported

MODULE = "deep_gemm"
CHECKED = "sgl-deep-gemm 0.1.4"
"""The release that the calls were made for. Others have a module of that name too, some with the same functions."""

ARCHITECTURES = (9, 10)
"""Major compute capabilities that the package has this kernel for."""

Call = tuple[tuple[str, ...], tuple[str, ...]]
"""What a function is given: arguments by position, whatever their names are there, and by name."""

CALLS: dict[str, Call] = {
    "get_num_sms": ((), ()),
    "get_paged_mqa_logits_metadata": (("context_lens", "block_kv", "num_sms"), ()),
    "fp8_paged_mqa_logits": (
        ("q", "kv_cache", "weights", "context_lens", "block_table", "schedule_meta", "max_context_len"),
        ("clean_logits",),
    ),
}
"""What the candidate calls."""


def load_package(more: Mapping[str, Call] = MappingProxyType({})) -> Any:
    """The module, with the functions of ``CALLS`` and of ``more``.

    ``Unsupported`` says what is missing: the package, a GPU for it, or a function that takes such a call. One
    whose signature can't be read, as compiled ones, is taken as it is.
    """
    if find_spec(MODULE) is None:
        raise Unsupported(f"candidate 'deepgemm' needs the package sgl-deep-gemm (module {MODULE}), not installed here")
    if not torch.cuda.is_available():
        raise Unsupported("candidate 'deepgemm' needs a CUDA GPU that torch can use, and found none")
    major, minor = torch.cuda.get_device_capability()
    if major not in ARCHITECTURES:
        raise Unsupported(
            f"candidate 'deepgemm' needs a GPU of compute capability {ARCHITECTURES[0]}.x or {ARCHITECTURES[1]}.x, "
            f"got {major}.{minor}"
        )
    module = import_module(MODULE)
    for name, (by_position, by_name) in {**CALLS, **more}.items():
        got = _refusal(module, name, by_position, by_name)
        if got:
            call = ", ".join([*by_position, *(f"{argument}=" for argument in by_name)])
            raise Unsupported(
                f"candidate 'deepgemm' calls {name}({call}) as {CHECKED} has it, and found {provider(module)}, "
                f"which has {got}"
            )
    return module


def _refusal(module: Any, name: str, by_position: tuple[str, ...], by_name: tuple[str, ...]) -> str:
    """What ``module`` has in place of the function ``name``; nothing where that takes the call."""
    function = getattr(module, name, None)
    if not callable(function):
        return "no such function"
    try:
        signature = inspect.signature(function)
    except ValueError:
        return ""
    try:
        signature.bind(*by_position, **dict.fromkeys(by_name))
    except TypeError:
        return f"{name}{signature}"
    return ""


def provider(module: Any) -> str:
    """Name and version of the distribution that has installed ``module``, or of each that may have.

    The module's own version, if it tells one, where it lies beside no distribution that claims it.
    """
    file = Path(getattr(module, "__file__", None) or "").absolute()  # a folder without code has none
    found = []
    for name in sorted(set(importlib.metadata.packages_distributions().get(MODULE, ()))):
        distribution = importlib.metadata.distribution(name)
        if file.is_relative_to(Path(str(distribution.locate_file(""))).absolute()):
            found.append(f"{name} {distribution.version}")
    version = getattr(module, "__version__", "")
    return " or ".join(found) or f"a module {MODULE} {version}".rstrip() + " of no known distribution"

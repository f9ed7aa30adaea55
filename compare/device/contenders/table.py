"""The contenders by name. Importing this imports none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Contender:
    """``module`` is the file of this folder; ``package`` what must be installed beside ours.

    ``gpu_only``: no CPU can time it; the others are timed where the rest is.
    """

    name: str
    module: str
    package: str | None = None
    gpu_only: bool = False

    def load(self) -> ModuleType:
        """The module; ``ImportError`` where something that it needs is missing."""
        return import_module(f"dsa_crosscheck.compare.device.contenders.{self.module}")

    def formats(self, stage: str) -> tuple[str, ...]:
        """Formats that the contender does of ``stage``; none if it does not have the stage."""
        formats: tuple[str, ...] = self.load().STAGES.get(stage, ())
        return formats

    def plan(self, stage: str, batch: Any) -> Callable[[], object]:
        """The raw launch of ``stage`` on ``batch``."""
        launch: Callable[[], object] = getattr(self.load(), stage)(batch)
        return launch

    def version(self) -> str | None:
        """Name and version of the package; None where it is not installed, or there is none."""
        if self.package is None:
            return None
        try:
            return f"{self.package} {version(self.package)}"
        except PackageNotFoundError:
            return None


CONTENDERS = (
    Contender("cuda", "cuda", gpu_only=True),
    Contender("cuda-mma", "cuda_mma", gpu_only=True),
    Contender("deepgemm", "deepgemm", "sgl-deep-gemm", gpu_only=True),
    Contender("sglang", "sglang", "sglang", gpu_only=True),
    Contender("unfused", "unfused"),
    Contender("torch", "torch_topk"),
)


def contenders_named(names: Sequence[str]) -> tuple[Contender, ...]:
    """The contenders of ``names``, in that order; ``ValueError`` lists them for a name that is none."""
    known = {one.name: one for one in CONTENDERS}
    for name in names:
        if name not in known:
            raise ValueError(f"`--candidate` should name, for a GPU, some of {tuple(known)}, got {name!r}")
    return tuple(known[name] for name in names)

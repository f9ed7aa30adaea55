"""Counting what torch operations allocate: works on real and on fake tensors, on any device."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_TORCH = str(Path(torch.__file__).parent)


class AllocationTracker(TorchDispatchMode):
    """Bytes of the storages that operations inside the block create, while they are held.

    ``peak``: most bytes held at once. ``largest``: bytes of the largest storage, ``source`` the line
    (``module:line``) outside torch that asked for the first of that size, ``shape`` its tensor's
    shape. What a kernel allocates and frees within one operation is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self.largest = 0
        self.source = ""
        self.shape: tuple[int, ...] = ()
        self._held: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = {id(t.untyped_storage()) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        result = func(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if id(storage) not in given and id(storage) not in self._held:
                    self._hold(storage, tuple(tensor.shape))
        return result

    def _hold(self, storage: torch.UntypedStorage, shape: tuple[int, ...]) -> None:
        size = storage.nbytes()
        self._held[id(storage)] = size
        weakref.finalize(storage, self._held.pop, id(storage))
        self.peak = max(self.peak, sum(self._held.values()))
        if size > self.largest:
            self.largest, self.shape, self.source = size, shape, _asking_line()


def _asking_line() -> str:
    """The innermost frame that is neither torch's nor this file's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith(_TORCH):
        if frame.f_back is None:
            return "unknown"
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}:{frame.f_lineno}"

"""Which build of the kernels serves a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dsa_crosscheck.cuda_impl import build

if TYPE_CHECKING:
    import tvm_ffi


def kernels_for(device: torch.device) -> tvm_ffi.Module:
    """The loaded module whose exports take tensors on ``device``: the emulated one for the CPU.

    Raises ``ValueError`` for any other device and ``BuildError`` when the module can't be built.
    """
    if device.type != "cpu":
        raise ValueError(f"tensors should be on the CPU, where the kernels run by emulation; got {device}")
    return build.load_emulated()

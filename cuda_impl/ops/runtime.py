"""Which build of the kernels serves a device."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from dsa_crosscheck.cuda_impl import build

if TYPE_CHECKING:
    import tvm_ffi


def kernels_for(device: torch.device) -> tvm_ffi.Module:
    """The loaded module whose exports take tensors on ``device``.

    The emulated one for the CPU, one built by nvcc for the very GPU otherwise. Raises ``ValueError``
    for any other kind of device and ``BuildError`` when the module can't be built.
    """
    if device.type == "cpu":
        return build.load_emulated()
    if device.type != "cuda":
        raise ValueError(f"tensors should be on the CPU or a CUDA device, got {device}")
    return _gpu_module(device)


@functools.cache
def _gpu_module(device: torch.device) -> tvm_ffi.Module:
    major, minor = torch.cuda.get_device_capability(device)
    return build.load_cuda(f"sm_{major}{minor}")

"""Where a result was obtained."""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    *("dsa-crosscheck", "numpy", "jax", "jaxlib", "torch", "apache-tvm-ffi", "xarray"),
    *("transformers", "sglang", "sgl-deep-gemm"),  # whose kernels may have been judged
)


def environment() -> dict[str, object]:
    """Versions and machine, as plain values; a package that is not installed is left out."""
    return dict(_environment())


@functools.cache
def _environment() -> dict[str, object]:
    found: dict[str, object] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

"""SGLang's own kernels, built from the CUDA sources that the installed wheel carries.

Nothing of the package is imported, since its Python needs a serving stack: the kernels need nvcc and
tvm-ffi. Stated here are names alone: which file, which entry point, which template arguments.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.cuda_impl import build

if TYPE_CHECKING:
    import tvm_ffi

VERSION = "0.5.23"
"""The release whose entry points and arguments these are."""

FLAGS = ("-std=c++20", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fvisibility=hidden")
"""Those of the package's own builds. Hidden symbols keep the static variables of two modules apart."""

TARGETS = {(9, 0): "sm_90a", (10, 0): "sm_100a", (12, 0): "sm_120f"}
"""What the package compiles for by compute capability, of those that its sources were compiled for here."""


@dataclass(frozen=True)
class Unit:
    """A module to build: a file of the package, its entry points (name exported, C++ name), more flags."""

    name: str
    file: str
    exports: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()

    def source(self, sources: Path) -> str:
        """The translation unit: an include and the exports."""
        lines = ["#include <tvm/ffi/container/tensor.h>", "#include <tvm/ffi/function.h>"]
        lines += [f'#include "{sources / "csrc" / self.file}"', "namespace sglang {"]
        lines += [f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ({entry}));" for name, entry in self.exports]
        return "\n".join([*lines, "}", ""])


def store_unit(page_size: int, bf16: bool = False) -> Unit:
    """The fused store of float32 index keys into pages of ``page_size`` tokens: ``forward``, ``forward_fp4``.

    ``bf16`` is what the package refuses to compile; only ``forward`` is asked for then.
    """
    kernel = f"FusedNormRopeKernel<fp32_t, 128, 64, {page_size}, 0, {str(bf16).lower()}, V4, true>"
    names = ("forward",) if bf16 else ("forward", "forward_fp4")
    exports = tuple((name, f"{kernel}::{name}") for name in names)
    return Unit("store", "deepseek_v4/fused_norm_rope_v2.cuh", exports)


POOL = Unit(
    "pool",
    "deepseek_v4/c4_v2.cuh",
    (("prefill", "FlashCompress4Kernel<128, fp32_t, fp32_t, fp32_t, true>::run_prefill"),),
    ("-use_fast_math",),
)
CLUSTER_PROBE = Unit("probe", "occupancy/cluster_probe.cuh", (("get_max_active_clusters", "get_max_active_clusters"),))
CLUSTERS = ((8, 2), (16, 1))
"""Blocks of a cluster, and blocks of a processor, that top-k asks the device about."""


def topk_unit(active: tuple[int, ...]) -> Unit:
    """Top-k v2 for a device that runs ``active`` clusters of each kind in ``CLUSTERS`` at once; 0 = none."""
    sizes = zip(CLUSTERS, active, strict=True)
    return Unit(
        "topk",
        "deepseek_v4/topk_v2.cuh",
        (("plan", "TopKKernel<true>::plan"), ("transform_paged", "TopKKernel<true>::transform_paged")),
        tuple(f"-DSGL_TOPK_V2_MAX_C{blocks}_OCC{occupancy}={count}" for (blocks, occupancy), count in sizes),
    )


def find_sources() -> Path:
    """The folder ``kernels/jit`` of the installed package, with ``csrc`` and ``include``.

    ``Unsupported`` when the package is missing, of another version, or without its sources.
    """
    wanted = f"candidate 'sglang' builds the kernels of an installed sglang {VERSION}"
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError as error:
        hint = f"`pip install --no-deps sglang=={VERSION}` is enough"
        raise Unsupported(f"{wanted}, and found none: {hint}") from error
    if version != VERSION:
        raise Unsupported(f"{wanted}, whose entry points it knows, and found {version}")
    spec = importlib.util.find_spec("sglang")
    roots = [Path(folder) / "kernels" / "jit" for folder in (spec and spec.submodule_search_locations) or ()]
    for root in roots:
        if (root / "csrc").is_dir() and (root / "include").is_dir():
            return root
    looked = ", ".join(map(str, roots)) or "nowhere: there is no importable package sglang"
    raise Unsupported(f"{wanted}, and found no folders csrc and include in it; looked in {looked}")


@functools.cache
def load(unit: Unit, capability: tuple[int, int]) -> tvm_ffi.Module:
    """The module of ``unit`` for a GPU of ``capability``, built when first asked for.

    ``Unsupported`` as ``find_sources``, for a capability that is not in ``TARGETS``, without nvcc, or
    with what nvcc reports.
    """
    sources = find_sources()
    target = target_of(capability)
    path = sources / "csrc" / unit.file
    if not path.is_file():
        raise Unsupported(f"sglang {VERSION} should have the source {path}, and has not")
    arch = f"-DSGL_CUDA_ARCH={100 * capability[0] + 10 * capability[1]}"
    flags = (*FLAGS, *unit.flags, arch, build.target_flag(target), f"-I{sources / 'include'}")
    headers = [path, *sorted(p for p in (sources / "include").rglob("*") if p.is_file())]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            entry = Path(scratch) / f"{unit.name}.cu"
            entry.write_text(unit.source(sources))
            return build.load_cuda_units(f"sglang-{unit.name}-{target}", [entry], flags, headers)
    except build.BuildError as error:
        raise Unsupported(f"the {unit.name} kernel of sglang {VERSION} does not build: {error}") from error


def target_of(capability: tuple[int, int]) -> str:
    """The target for nvcc; ``Unsupported`` for a capability that the sources were not compiled for here."""
    if capability not in TARGETS:
        known = ", ".join(f"{major}.{minor}" for major, minor in TARGETS)
        got = ".".join(map(str, capability))
        raise Unsupported(f"candidate 'sglang' is for GPUs of compute capability {known}, and found {got}")
    return TARGETS[capability]


@functools.cache  # a build that fails is not cached, and takes half a minute
def refusal_of_bf16(capability: tuple[int, int]) -> str:
    """What the compiler says to a bf16 store of index keys; ``Unsupported`` when it fails otherwise."""
    try:
        load(store_unit(64, bf16=True), capability)
    except Unsupported as error:
        said = [line.strip() for line in str(error).splitlines() if "static assertion" in line]
        if not said:
            raise
        return f"its own static assertion forbids it, {Path(said[0]).name}"
    return "it compiles, and no reader of such a cache is known"

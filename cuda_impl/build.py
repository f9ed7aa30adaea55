"""Building the kernels: for this CPU by emulation, and for a GPU by nvcc."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm_ffi

ROOT = Path(__file__).parent
KERNELS = ROOT / "kernels"
SIMT = ROOT / "simt"

EMULATED_FLAGS = (
    *("-x", "c++", "-std=c++20", "-O3", "-ffp-contract=off", "-fvisibility=hidden"),
    *("-Wall", "-Wno-unknown-pragmas"),  # `#pragma unroll` speaks to nvcc
)
"""Flags of the emulated build. Without contraction, a * b + c rounds twice, as under ``CUDA_FLAGS``.
Hidden symbols keep the static variables of two loaded builds apart."""

CUDA_FLAGS = ("-std=c++20", "-O3", "-fmad=false", "-Xcompiler", "-fPIC")
"""Flags of the GPU build. The rest of nvcc's arithmetic defaults are IEEE already."""

CUDA_ARCHITECTURES = ("sm_90", "sm_120")
"""Targets that the kernels must compile for."""

FEATURE_TARGETS = {"sm_90": "sm_90a"}
"""Targets that are compiled with their architecture's own instructions (Hopper's matrix unit)."""


class BuildError(RuntimeError):
    """A compiler is missing, or it refused the sources."""


def translation_units() -> tuple[Path, ...]:
    """Sources that export functions: every ``kernels/*.cu``, in name order."""
    return tuple(sorted(KERNELS.glob("*.cu")))


def cache_dir() -> Path:
    """Where built modules are kept.

    ``$DSA_CROSSCHECK_CACHE``, else ``dsa-crosscheck`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    override = os.environ.get("DSA_CROSSCHECK_CACHE")
    if override:
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsa-crosscheck"


def emulated_library(sources: Sequence[Path] | None = None) -> Path:
    """The shared library of ``sources`` (default ``translation_units()``) for this CPU.

    Builds it unless the cache holds one made from the same sources, headers, flags, compiler and
    tvm-ffi; a cached one is found without starting the compiler. Safe to call from several
    processes: one builds, the others wait. Raises ``BuildError`` when there is no C++ compiler or
    it reports an error, and ``FileNotFoundError`` for a source that does not exist.
    """
    units = translation_units() if sources is None else tuple(Path(s).resolve() for s in sources)
    compiler = _compiler()
    flags = (*EMULATED_FLAGS, str(os.environ.get("CXX")))
    library = cache_dir() / f"emulated-{_key(units, compiler, flags, _headers())}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with _lock(library.with_suffix(".lock")):
        if not library.exists():
            _build(units, library)
    return library


def load_emulated(sources: Sequence[Path] | None = None) -> tvm_ffi.Module:
    """The module of ``emulated_library(sources)``, loaded once a process; its exports are attributes."""
    return _load(emulated_library(sources))


def compile_cuda(architectures: Sequence[str], directory: Path) -> list[Path]:
    """Compiles every translation unit with nvcc for ``architectures`` (such as ``sm_90``) into ``directory``.

    Needs the CUDA toolkit but no GPU. Returns one object file a source, with the code of every
    architecture: what is for the host is compiled once. Raises ``BuildError`` when nvcc is not found
    (on ``PATH`` or under ``$CUDA_HOME``) or reports an error.
    """
    import tvm_ffi.libinfo

    compiler = str(nvcc())
    includes = [f"-I{path}" for path in tvm_ffi.libinfo.include_paths()]
    targets = [target_flag(arch) for arch in architectures]
    objects = []
    for unit in translation_units():
        output = directory / f"{unit.stem}.o"
        _run([compiler, *CUDA_FLAGS, *targets, *includes, "-c", str(unit), "-o", str(output)])
        objects.append(output)
    return objects


def target_flag(arch: str) -> str:
    """The nvcc option that names the machine code to make for ``arch``."""
    name = FEATURE_TARGETS.get(arch, arch)
    return f"-gencode=arch={name.replace('sm_', 'compute_')},code={name}"


def load_cuda(arch: str) -> tvm_ffi.Module:
    """The module of the kernels for a GPU of ``arch`` (such as ``sm_90``), built when first asked for.

    Cached and raising as in ``load_cuda_units``.
    """
    return load_cuda_units(arch, translation_units(), (*CUDA_FLAGS, target_flag(arch)), _headers())


def load_cuda_units(name: str, units: Sequence[Path], flags: Sequence[str], headers: Sequence[Path]) -> tvm_ffi.Module:
    """The module of CUDA sources ``units`` under nvcc's ``flags``, built when first asked for.

    ``name`` begins the file's name. Cached like the emulated one, by sources, ``headers`` (files they
    include), flags and nvcc. Raises ``BuildError`` without nvcc or with what it reports.
    """
    compiler = nvcc()
    library = cache_dir() / f"{name}-{_key(units, compiler, flags, headers)}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with _lock(library.with_suffix(".lock")):
            if not library.exists():
                _build_cuda(units, compiler, flags, library)
    return _load(library)


def _build_cuda(units: Sequence[Path], compiler: Path, flags: Sequence[str], library: Path) -> None:
    import tvm_ffi.libinfo

    includes = [f"-I{path}" for path in tvm_ffi.libinfo.include_paths()]
    runtime = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="building-") as scratch:
        built = Path(scratch) / library.name
        link = ["-shared", str(runtime), f"-Xlinker=-rpath={runtime.parent}"]
        _run([str(compiler), *flags, *includes, *map(str, units), *link, "-o", str(built)])
        os.replace(built, library)


def nvcc() -> Path:
    """The CUDA compiler, on ``PATH`` or under ``$CUDA_HOME``; ``BuildError`` without one."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc") or (shutil.which("nvcc", path=str(Path(home) / "bin")) if home else None)
    if found is None:
        raise BuildError("nvcc was not found: install the CUDA toolkit, or set CUDA_HOME to its root")
    return Path(found)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")


@functools.cache
def _load(library: Path) -> tvm_ffi.Module:
    import tvm_ffi

    return tvm_ffi.load_module(library)


def _compiler() -> Path:
    command = os.environ.get("CXX") or "c++"
    found = shutil.which(shlex.split(command)[0])
    if found is None:
        raise BuildError(
            f"no C++ compiler: {command!r} was not found. The emulated kernels need g++ >= 11 or clang++ >= 14 "
            "(for example `apt install g++`); name another with the CXX variable"
        )
    return Path(found).resolve()


def _headers() -> list[Path]:
    """What the project's own sources may include."""
    return sorted(p for folder in (KERNELS, SIMT) for p in folder.iterdir() if p.suffix in (".cuh", ".h"))


def _key(units: Sequence[Path], compiler: Path, flags: Sequence[str], headers: Sequence[Path]) -> str:
    """Digest of everything the library depends on.

    The compiler enters by path, size and time of change: asking it for its version would start it.
    """
    from importlib.metadata import version

    digest = hashlib.sha256()
    status = compiler.stat()
    facts = (tuple(flags), str(compiler), status.st_size, status.st_mtime_ns)
    digest.update(repr((*facts, version("apache-tvm-ffi"))).encode())
    for path in (*units, *headers):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def _build(units: Sequence[Path], library: Path) -> None:
    import tvm_ffi.cpp

    with tempfile.TemporaryDirectory(dir=library.parent, prefix="building-") as scratch:
        # tvm-ffi picks the compiler by suffix, so a CUDA source is entered through a .cpp file.
        entries = []
        for unit in units:
            entry = Path(scratch) / f"{unit.stem}.cpp"
            entry.write_text(f'#include "{unit}"\n')
            entries.append(str(entry))
        try:
            with _ninja_on_path():
                built = tvm_ffi.cpp.build(
                    "emulated",
                    sources=entries,
                    extra_cflags=list(EMULATED_FLAGS),
                    extra_include_paths=[str(KERNELS)],
                    build_directory=scratch,
                )
        except RuntimeError as error:
            raise BuildError(f"the emulated kernels do not build:\n{error}") from error
        os.replace(built, library)


@contextlib.contextmanager
def _ninja_on_path() -> Iterator[None]:
    """Puts the ``ninja`` of this Python environment on ``PATH`` when the shell has none."""
    before = os.environ.get("PATH", "")
    if shutil.which("ninja") is None:
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    wanted = sys.argv[1:] or CUDA_ARCHITECTURES
    with tempfile.TemporaryDirectory() as folder:
        made = compile_cuda(wanted, Path(folder))
        print(f"{', '.join(wanted)}: {len(made)} translation units compile")

"""Building: the cache, its errors, and compilation for GPUs where nvcc is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dsa_crosscheck.cuda_impl import build

BEFORE_THE_WAIT = (
    r"\s*|#if .*|  using .*|  __shared__ .*|.*dynamic_shared<.*|.* shared\.\w+\.init\([\w :,*]*\);|  __sync.*"
)
PROBE = Path(__file__).parent / "probes" / "rounding_probe.cu"


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSA_CROSSCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSA_CROSSCHECK_CACHE", "/somewhere")
    assert build.cache_dir() == Path("/somewhere")
    monkeypatch.delenv("DSA_CROSSCHECK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert build.cache_dir() == Path("/elsewhere/dsa-crosscheck")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert build.cache_dir() == Path.home() / ".cache" / "dsa-crosscheck"


def test_every_kernel_waits_for_those_before_it() -> None:
    """They start while others still run: only their own shared memory may be touched before."""
    found = {}
    for path in [*build.KERNELS.glob("*.cuh"), PROBE, PROBE.with_name("steps_probe.cu")]:
        for kernel in path.read_text().split("__global__")[1:]:
            name, body = re.search(r"(\w+_kernel)\(.*?\{\n(.*?)\n\}", kernel, re.DOTALL).groups()  # type: ignore[union-attr]
            found[path.name, name] = body.split("after_earlier_kernels();\n")
    assert len(found) >= 11
    for kernel, parts in found.items():
        assert len(parts) == 2, f"{kernel} waits once"
        for line in parts[0].split("\n"):
            assert re.fullmatch(BEFORE_THE_WAIT, line), f"{kernel} waits before"


def test_a_cached_library_needs_no_compiler_run(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    wrapper = tmp_path / "cxx"
    wrapper.write_text(f'#!/bin/sh\necho run >> {calls}\nexec c++ "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    first = build.emulated_library([PROBE])
    runs = calls.read_text()
    assert runs
    assert build.emulated_library([PROBE]) == first
    assert calls.read_text() == runs
    assert sorted(p.suffix for p in own_cache.iterdir()) == [".lock", ".so"]


def test_sources_and_headers_change_the_key(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = tmp_path / "kernels"
    shutil.copytree(build.KERNELS, kernels)
    shutil.copytree(build.SIMT, tmp_path / "simt")
    monkeypatch.setattr(build, "KERNELS", kernels)
    source = tmp_path / "probe.cu"
    shutil.copy(PROBE, source)
    before = build.load_emulated([source])
    x, out = np.array([448.0], np.float32), np.zeros(1, np.uint32)
    before.convert(x, out, 1)
    assert out[0] == 0x7E
    header = kernels / "rounding.cuh"
    header.write_text(header.read_text().replace("sign | 0x7eu", "sign | 0x7du"))
    build.load_emulated([source]).convert(x, out, 1)
    assert out[0] == 0x7D
    before.convert(x, out, 1)
    assert out[0] == 0x7E


def test_processes_share_one_build(own_cache: Path) -> None:
    code = f"from dsa_crosscheck.cuda_impl.build import emulated_library as e; print(e([{str(PROBE)!r}]))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [p.communicate()[0].strip() for p in processes]
    assert outputs[0] == outputs[1]
    assert Path(outputs[0]).exists()
    assert len(list(own_cache.glob("*.so"))) == 1


def test_without_a_compiler(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler: 'no-such-compiler'.*apt install g\+\+"):
        build.emulated_library()


def test_errors_of_the_compiler_are_shown(own_cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text("int f() { return undeclared_name; }\n")
    with pytest.raises(build.BuildError, match="undeclared_name"):
        build.emulated_library([source])
    assert not list(own_cache.glob("*.so"))
    with pytest.raises(FileNotFoundError):
        build.emulated_library([tmp_path / "absent.cu"])


def test_importing_the_build_loads_no_heavy_library() -> None:
    heavy = ("torch", "tvm_ffi", "numpy")
    code = f"import sys, dsa_crosscheck.cuda_impl.build; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_kernels_compile_for_gpus(tmp_path: Path) -> None:
    objects = build.compile_cuda(build.CUDA_ARCHITECTURES, tmp_path)
    assert [o.stem for o in objects] == [u.stem for u in build.translation_units()]
    assert all(o.stat().st_size > 10_000 for o in objects)


def test_every_unit_is_compiled_for_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    compiler = tmp_path / "nvcc"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    build.compile_cuda(("sm_90", "sm_120"), tmp_path)
    commands = calls.read_text().splitlines()
    assert len(commands) == len(build.translation_units())
    for command, unit in zip(commands, build.translation_units(), strict=True):
        assert f"-c {unit} " in command
        targets = [word for word in command.split() if word.startswith("-gencode")]
        assert targets == ["-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_120,code=sm_120"]


def test_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    with pytest.raises(build.BuildError, match="install the CUDA toolkit"):
        build.compile_cuda(["sm_90"], tmp_path)

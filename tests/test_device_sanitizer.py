"""``dsa-crosscheck device sanitizer`` with a stand-in for compute-sanitizer, and its workload by emulation."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dsa_crosscheck.compare import cli
from dsa_crosscheck.compare.device import record, sanitizer, workload
from dsa_crosscheck.cuda_impl import build

HEAD = {"device": "a GPU", "commit": "abc"}
STAND_IN = """#!/bin/sh
if [ "$1" = --version ]; then printf 'NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.0.0 (build 1)\\n'; exit; fi
tool=$2
{limits}
for last; do :; done
if [ "$last" = "$tool" ]; then
  eval "errors=\\${{PLANTED_$tool:-64}}"; [ "$errors" = 0 ] || echo "{planted}"
else
  cat {names}; errors={errors}
fi
if [ "$tool" = racecheck ]; then
  echo "========= RACECHECK SUMMARY: $errors hazards displayed ($errors errors, 0 warnings)"
else
  echo "========= ERROR SUMMARY: $errors errors"
fi
[ "$errors" = 0 ] || exit 99
"""


def test_every_kernel_is_launched(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("many tiles", "many tiles of two rows"):  # what is large is for the Hopper scorer alone
        monkeypatch.setitem(workload.SCORED, name, replace(workload.SCORED[name], requests=2, keys=200))
    workload.run("cpu")
    ran = [line.removeprefix("ran ") for line in capsys.readouterr().out.splitlines()]
    assert ran == [name for name, _ in workload.launches("cpu")]
    assert len(set(ran)) == len(ran)
    exports = set(re.findall(r"EXPORT_TYPED_FUNC\((\w+),", "".join(p.read_text() for p in build.translation_units())))
    launched = {" ".join(name.split()[:2]) if name.startswith("paged_scores") else name.split()[0] for name in ran}
    idle = {"topk_blocks", "topk_workspace"} | {f"score_layout_{kind}" for kind in ("fp8", "bf16", "fp4")}
    assert {name.replace(" ", "_") for name in launched} == exports - idle  # which launch nothing


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("========= ERROR SUMMARY: 0 errors\n", 0),
        ("text\n========= ERROR SUMMARY: 1 error\n", 1),
        ("========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)\n", 3),
        ("========= ERROR SUMMARY: 2 errors\n========= ERROR SUMMARY: 5 errors\n", 7),
        ("========= ERROR SUMMARY: 97 errors\n========= ERROR SUMMARY: 77 errors were not printed. Use\n", 97),
        ("ERROR SUMMARY: 0 errors in the program's own words\n", None),
        ("", None),
    ],
)
def test_summaries(output: str, errors: int | None) -> None:
    assert sanitizer.count_errors(output) == errors


ALL_PLANTED = " ".join(sanitizer.PLANTED_KERNELS.values())


def stand_in(folder: Path, errors: int = 0, names: list[str] | None = None, planted: str = ALL_PLANTED) -> None:
    """A compute-sanitizer that has ``errors`` to tell, of a workload that prints ``names``, and of ``planted``."""
    known = [name for name, _ in workload.launches("cpu")] if names is None else names
    (folder / "names").write_text("".join(f"ran {name}\n" for name in known))
    options = " ".join(sanitizer.OPTIONS)
    limits = f'case "$*" in *"{options}"*) ;; *) exit 5;; esac'
    program = folder / "compute-sanitizer"
    program.write_text(STAND_IN.format(limits=limits, errors=errors, names=folder / "names", planted=planted))
    program.chmod(0o755)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that says it has a GPU, with an empty folder first on ``PATH``."""
    monkeypatch.setattr(record, "need_gpu", lambda what: None)
    monkeypatch.setattr(record, "head", lambda commit: {**HEAD, "commit": commit})
    monkeypatch.setattr(sanitizer, "kernels_for", lambda device: None)
    monkeypatch.setattr(sanitizer, "_compile", lambda folder: tmp_path / "planted")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def run(folder: Path) -> tuple[int, dict[str, Any]]:
    code = cli.main(["device", "sanitizer", "--out", str(folder / "found.json"), "--commit", "abc"])
    return code, json.loads((folder / "found.json").read_text())["sanitizer"]


def test_a_clean_run_passes(gpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(gpu)
    code, found = run(gpu)
    assert code == 0
    assert found["version"] == "Version 2025.3.0.0 (build 1)"
    assert [(t["tool"], t["errors"], t["exit_code"], t["planted_errors"]) for t in found["tools"]] == [
        (tool, 0, 0, 64) for tool in sanitizer.TOOLS
    ]
    assert len(found["tools"][0]["kernels"]) == len(list(workload.launches("cpu")))
    assert str(gpu) not in found["command"]
    assert "racecheck" in capsys.readouterr().out


def test_an_error_fails(gpu: Path) -> None:
    stand_in(gpu, errors=2)
    code, found = run(gpu)
    assert code == 1
    assert [(t["errors"], t["exit_code"], t["passed"]) for t in found["tools"]] == [(2, 99, False)] * 4


COPY = """========= Host API memory access error at host access to 0x7f5f44813400 of size 1 bytes
=========     Uninitialized access to 0x7f5f44813400 on access by cudaMemcpy source
"""


SAID = {
    "memcheck": """========= Invalid __global__ write of size 4 bytes
=========     at dsa::a_kernel(int *)+0x100
""",
    "racecheck": """========= Error: Race reported between Read access at dsa::a_kernel(int *)+0x7820
=========     and Write access at dsa::a_kernel(int *)+0x5830 [48 hazards]
""",
}


@pytest.mark.parametrize(
    ("tool", "report"),
    [
        ("memcheck", "dsa::a_kernel(int *): Invalid __global__ write of size 4 bytes"),
        ("racecheck", "dsa::a_kernel(int *): Race reported between Read access"),
    ],
)
def test_what_is_said_of_which_kernel_is_kept(
    gpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tool: str, report: str
) -> None:
    names = [name for name, _ in workload.launches("cpu")]
    stand_in(gpu, errors=1, names=[*names[:-1], f"{names[-1]}\n{2 * SAID[tool]}".rstrip()])
    monkeypatch.setattr(sanitizer, "TOOLS", (tool,))
    code, found = run(gpu)
    assert code == 1
    assert found["tools"][0]["reports"] == [report]
    assert report in capsys.readouterr().out


@pytest.mark.parametrize(("errors", "passes"), [(2, True), (3, False)])
def test_host_copies_of_what_others_wrote_are_told_and_not_counted(
    gpu: Path, monkeypatch: pytest.MonkeyPatch, errors: int, passes: bool
) -> None:
    names = [name for name, _ in workload.launches("cpu")]
    stand_in(gpu, errors=errors, names=[*names[:-1], f"{names[-1]}\n{2 * COPY}".rstrip()])
    monkeypatch.setattr(sanitizer, "TOOLS", ("initcheck",))
    code, found = run(gpu)
    assert code == (0 if passes else 1)
    assert [(t["errors"], t["copies"]) for t in found["tools"]] == [(errors - 2, 2)]


def test_a_tool_that_misses_its_planted_fault_fails(
    gpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(gpu)
    monkeypatch.setenv("PLANTED_initcheck", "0")
    code, found = run(gpu)
    assert code == 1
    assert [t["tool"] for t in found["tools"] if not t["passed"]] == ["initcheck"]
    assert "planted: NOT FOUND" in capsys.readouterr().out


def test_another_error_than_the_planted_one_does_not_do(gpu: Path) -> None:
    stand_in(gpu, planted="an error of the driver")
    code, found = run(gpu)
    assert code == 1
    assert [t["planted_errors"] for t in found["tools"]] == [0] * 4


def test_a_kernel_that_did_not_run_fails(gpu: Path) -> None:
    stand_in(gpu, names=[name for name, _ in workload.launches("cpu")][:-1])
    assert run(gpu)[0] == 1


def test_no_sanitizer_is_a_usage_error(
    gpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_nvcc() -> Path:
        raise build.BuildError("no nvcc")

    monkeypatch.setattr(sanitizer, "nvcc", no_nvcc)
    monkeypatch.setenv("PATH", str(gpu))
    assert cli.main(["device", "sanitizer", "--out", str(gpu / "found.json")]) == 2
    assert "needs compute-sanitizer on PATH or in the CUDA toolkit" in capsys.readouterr().err
    toolkit = gpu / "toolkit"
    for folder in ("bin", "compute-sanitizer"):
        (toolkit / folder).mkdir(parents=True)
    stand_in(toolkit / "compute-sanitizer")
    monkeypatch.setattr(sanitizer, "nvcc", lambda: toolkit / "bin" / "nvcc")
    assert sanitizer.find_sanitizer() == toolkit / "compute-sanitizer" / "compute-sanitizer"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_planted_faults_compile_and_are_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    program = sanitizer._compile(tmp_path)
    assert program.stat().st_size > 0
    target = tmp_path / "planted.ptx"
    subprocess.run(["nvcc", "-std=c++20", "-ptx", str(sanitizer.PLANTED), "-o", str(target)], check=True)
    entries = re.findall(r"\.entry (\w+)", target.read_text())
    assert len(entries) == len(sanitizer.TOOLS)
    assert all(name.startswith(sanitizer.OPTIONS[1].partition("=")[2]) for name in entries)

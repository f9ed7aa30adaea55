"""Our kernels under compute-sanitizer, and faults planted beside them that it must find."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from dsa_crosscheck.compare.device.workload import launches
from dsa_crosscheck.cuda_impl.build import BuildError, nvcc, target_flag
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = ("--kernel-name", "kernel_substring=_ZN3dsa", "--error-exitcode", "99", "--print-limit", "100000")
"""Only kernels of our namespace are watched (names are compared as the compiler mangles them)."""
WORKLOAD = (sys.executable, "-m", "dsa_crosscheck.compare.device.workload")
PLANTED = Path(__file__).parent / "planted.cu"
PLANTED_KERNELS = {
    "memcheck": "writes_past_the_end",
    "racecheck": "races_in_shared_memory",
    "initcheck": "reads_what_nobody_wrote",
    "synccheck": "meets_a_barrier_uninvited",
}
"""Kernel whose fault each tool must name: any other error is not what was planted."""
SUMMARY = re.compile(r"^========= (?:RACECHECK SUMMARY: (\d+) hazards?|ERROR SUMMARY: (\d+) errors?\s*$)", re.MULTILINE)
"""Not the line that says how many errors were left unprinted."""
COPIES = re.compile(r"^========= Host API memory access error[^\n]*\n=========     Uninitialized access", re.MULTILINE)
"""Torch reading back what its own kernels wrote, which nobody watched; our kernels copy nothing."""
REPORT = re.compile(r"^========= (\S[^\n]*)\n=========     at ([^\n]*?)\+0x", re.MULTILINE)
RACE = re.compile(r"^========= \w+: (Race reported between \w+ access) at ([^\n]*?)\+0x", re.MULTILINE)
"""What is said of which kernel."""


def find_sanitizer() -> Path:
    """compute-sanitizer, on ``PATH`` or in the CUDA toolkit of nvcc; ``ValueError`` where neither has one."""
    folders = [os.environ.get("PATH", "")]
    try:
        toolkit = nvcc().resolve().parent.parent
        folders += [str(toolkit / "bin"), str(toolkit / "compute-sanitizer")]
    except BuildError:
        pass  # without nvcc there is no toolkit to look in, which the error below says too
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        raise ValueError("`device sanitizer` needs compute-sanitizer on PATH or in the CUDA toolkit, and found none")
    return Path(found)


def measure() -> dict[str, Any]:
    """``version``, ``command`` and, for each tool, what it said of our kernels and of its planted fault.

    A tool's entry: ``exit_code``, ``errors`` of our kernels (None without a summary), ``copies`` (reports of host
    copies from memory that unwatched kernels wrote), ``reports`` (which kernels, and what of them), ``kernels``
    that ran to their end,
    ``planted_errors``, and ``passed``: no error, every kernel run, the planted fault found. ``BuildError``
    where nvcc does not compile the planted faults.
    """
    sanitizer = find_sanitizer()
    kernels_for(torch.device("cuda"))  # built here: no tool should watch a compiler
    expected = [name for name, _ in launches("cpu")]
    with tempfile.TemporaryDirectory() as folder:
        planted = _compile(Path(folder))
        tools = [_tool(sanitizer, tool, planted, expected) for tool in TOOLS]
    return {
        "version": _version(sanitizer),
        "command": shlex.join(["compute-sanitizer", "--tool", "TOOL", *OPTIONS, "python", *WORKLOAD[1:]]),
        "tools": tools,
    }


def _tool(sanitizer: Path, tool: str, planted: Path, expected: Sequence[str]) -> dict[str, Any]:
    code, output = _watch(sanitizer, tool, WORKLOAD)
    _, planted_output = _watch(sanitizer, tool, (str(planted), tool))
    errors = count_errors(output)
    planted_errors = count_errors(planted_output) if PLANTED_KERNELS[tool] in planted_output else 0
    kernels = re.findall(r"^ran (.+)$", output, re.MULTILINE)
    copies = len(COPIES.findall(output))
    errors = None if errors is None else errors - copies
    passed = (
        code in ((0, 99) if copies else (0,)) and errors == 0 and kernels == list(expected) and bool(planted_errors)
    )
    if not passed:
        print(output, planted_output, sep="\n", file=sys.stderr)
    return {
        "tool": tool,
        "exit_code": code,
        "errors": errors,
        "copies": copies,
        "reports": sorted({": ".join(found[::-1]) for form in (REPORT, RACE) for found in form.findall(output)}),
        "kernels": kernels,
        "planted_errors": planted_errors,
        "passed": passed,
    }


def count_errors(output: str) -> int | None:
    """Errors, or hazards of racecheck, warnings among them, that the summaries of ``output`` add up to.

    None without a summary: the tool did not come to its end.
    """
    found = SUMMARY.findall(output)
    return sum(int(hazards or errors) for hazards, errors in found) if found else None


def _watch(sanitizer: Path, tool: str, command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output. Each tensor is an allocation of its own, so that its bounds are the real ones."""
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        [str(sanitizer), "--tool", tool, *OPTIONS, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=environment,
    )
    return done.returncode, done.stdout


def _compile(folder: Path) -> Path:
    program = folder / "planted"
    major, minor = torch.cuda.get_device_capability()
    command = [str(nvcc()), "-std=c++20", target_flag(f"sm_{major}{minor}"), str(PLANTED), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return program


def _version(sanitizer: Path) -> str:
    said = subprocess.run([str(sanitizer), "--version"], capture_output=True, text=True, check=False).stdout
    return next((line.strip() for line in said.splitlines() if line.startswith("Version")), said.strip())


def render(found: dict[str, Any]) -> str:
    """A line for each tool."""
    return "\n".join(
        [f"compute-sanitizer {found['version']}"]
        + [
            f"{t['tool']:10} {len(t['kernels'])} launches   errors {t['errors']}   exit code {t['exit_code']}   "
            f"planted: {'found' if t['planted_errors'] else 'NOT FOUND'}   {'passed' if t['passed'] else 'FAILED'}"
            + "".join(f"\n           {report}" for report in t["reports"])
            for t in found["tools"]
        ]
    )

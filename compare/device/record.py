"""Records of what was measured on a GPU: a head that says where, and members that say what."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

from dsa_crosscheck.compare.environment import environment
from dsa_crosscheck.compare.files import write_text
from dsa_crosscheck.cuda_impl.build import nvcc


def need_gpu(what: str) -> None:
    """``ValueError`` unless torch has a CUDA GPU to use for ``what``."""
    if not torch.cuda.is_available():
        raise ValueError(f"{what} needs a CUDA GPU that torch can use, and found none")


def head(commit: str) -> dict[str, Any]:
    """Device, driver, toolkit, ``commit`` as given, date (UTC) and environment.

    A driver that can't be asked is empty. ``BuildError`` without nvcc, which built what is measured.
    """
    return {
        "device": torch.cuda.get_device_name(),
        "driver": _last_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "toolkit": _last_line(str(nvcc()), "--version"),
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "environment": environment(),
    }


def resumed(path: Path, top: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """What a run that was stopped left in ``path``: its ``member``, if its head is ``top`` and names a commit.

    Nothing without such a file, or of another commit, device, toolkit or environment. The date may differ.
    """
    if not path.is_file() or not top["commit"]:
        return []
    try:
        left = json.loads(path.read_text())
    except json.JSONDecodeError:
        return []
    if not isinstance(left, dict):
        return []
    same = all(left.get(name) == value for name, value in top.items() if name != "date")
    return list(left.get(member, [])) if same else []


def write(path: Path, record: dict[str, Any]) -> None:
    """Write ``record`` as JSON; whole or not at all."""
    write_text(path, json.dumps(record, indent=1) + "\n")


def output_of(*command: str) -> str:
    """What a command prints; nothing where there is no such command."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _last_line(*command: str) -> str:
    return output_of(*command).strip().split("\n")[-1].strip()

"""``dsa-crosscheck device``: time the kernels on this GPU, check them, and record the figures."""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("device", help="time the kernels on this GPU and record the figures")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="JSON file to write")
    parser.add_argument("--commit", default="", help="what was measured, recorded as given")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure everything, print a line each, and write the record."""
    if not args.out.parent.is_dir():
        raise ValueError(f"`--out` should be a path in an existing folder, got {args.out}")
    import torch

    if not torch.cuda.is_available():
        raise ValueError("`device` needs a CUDA GPU that torch can use, and found none")
    from dsa_crosscheck.compare.device.memory import measure_memory
    from dsa_crosscheck.compare.device.scoring import CONTENDERS, Shape, time_scoring
    from dsa_crosscheck.compare.device.selecting import time_store, time_topk
    from dsa_crosscheck.compare.device.timing import copy_bytes_per_second
    from dsa_crosscheck.compare.environment import environment
    from dsa_crosscheck.compare.files import write_text

    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "driver": _driver(),
        "toolkit": _toolkit(),
        "commit": args.commit,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "environment": environment(),
        "copy_bytes_per_second": copy_bytes_per_second(),
        "cost": [],
        "memory": [],
    }
    print(f"copy {record['copy_bytes_per_second'] / 1e12:.2f} TB/s")
    shapes = [Shape(b, n) for b in (1, 64, 256) for n in (8192, 32768, 131072) if b * n <= 1 << 24]
    for shape in [*shapes, Shape(64, 32768, 2)]:
        for name, (_, formats) in CONTENDERS.items():
            for kind in formats:
                _record(record["cost"], lambda n=name, k=kind, s=shape: [time_scoring(n, k, s)])
    for rows, keys in ((256, 32768), (8, 262144)):
        for k in (512, 2048):
            _record(record["cost"], lambda r=rows, n=keys, k=k: time_topk(r, n, k))
    for kind in ("fp8", "bf16", "fp4"):
        _record(record["cost"], lambda k=kind: [time_store(k)])
    for path, rows, keys in (
        ("cuda", 6144, 5632),
        ("unfused", 6144, 5632),
        ("cuda", 1024, 32768),
        ("unfused", 1024, 32768),
        ("cuda", 1024, 262144),
    ):
        _record(record["memory"], lambda p=path, r=rows, n=keys: [measure_memory(p, "fp8", r, n)])
    write_text(args.out, json.dumps(record, indent=1) + "\n")
    return 0


def _record(entries: list[dict[str, object]], measure: Any) -> None:
    """Add what ``measure`` returns, or say why it could not: a missing peer, or a device too small."""
    import torch

    try:
        found = measure()
    except (ImportError, torch.OutOfMemoryError) as error:
        print(f"left out: {error}", file=sys.stderr)
        return
    for entry in found:
        entries.append(entry)
        print(json.dumps(entry), flush=True)


def _driver() -> str:
    found = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.split("\n")[0].strip()


def _toolkit() -> str:
    from dsa_crosscheck.cuda_impl.build import nvcc

    found = subprocess.run([str(nvcc()), "--version"], capture_output=True, text=True, check=False)
    return found.stdout.strip().split("\n")[-1]

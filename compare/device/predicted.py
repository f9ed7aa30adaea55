"""Bytes that a read path should ask for on a GPU, from the requests of the memory study."""

from __future__ import annotations

from dsa_crosscheck.compare.device.sizes import CONVENTIONS
from dsa_crosscheck.compare.studies.read_path import ReadSizes, footprint
from dsa_crosscheck.compare.studies.read_paths_own import OWN
from dsa_crosscheck.reference.geometry import Geometry

STUDIED = {"cuda": "streaming", "unfused": "unfused"}
"""What the memory study calls a path."""


def predicted_bytes(path: str, format_name: str, rows: int, keys: int) -> int:
    """Most bytes held at once to score ``rows`` rows that each search ``keys`` keys, inputs not counted."""
    studied = next(one for one in OWN if one.name == STUDIED[path])
    return footprint(studied.requests(ReadSizes(rows, keys, Geometry(), CONVENTIONS[format_name].key))).peak

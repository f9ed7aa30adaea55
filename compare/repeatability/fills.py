"""What poisoned bytes hold: records that would show in a score if anyone used them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.quantise import quantise
from dsa_crosscheck.reference.query import query_values
from dsa_crosscheck.reference.record import pack_record

WINNING_SIZE = 1e4
"""Largest element of a winning key: float32 scores stay finite and beat every ordinary key."""

_LARGEST_CODE = {"fp8-e4m3fn": b"\x7e", "fp8-e4m3fnuz": b"\x7f", "fp4-e2m1": b"\x77"}
_LARGEST_CODE |= {"bf16": b"\x7f\x7f", "exact": b"\xff\xff\x7f\x7f"}
_LARGEST_SCALE = {0: b"", 1: b"\xfe", 4: b"\xff\xff\x7f\x7f"}
_NAN_CODE = {"fp8-e4m3fnuz": b"\x80"}
"""NaN of every other format, and of both kinds of scale, is all ones; fp4 has none of its own."""


def nan_records(setup: Setup) -> np.ndarray:
    """uint8 [rows, record_bytes]: NaN codes, where the format has one, and NaN scales."""
    codec, layout = setup.conventions.key, setup.layout
    values = np.frombuffer(_NAN_CODE.get(codec.format, b"\xff") * layout.value_bytes, np.uint8)
    return _for_rows(setup, np.concatenate([values, np.full(layout.scale_bytes, 0xFF, np.uint8)]))


def huge_records(setup: Setup) -> np.ndarray:
    """uint8 [rows, record_bytes]: the largest finite codes under the largest finite scales."""
    codec, layout = setup.conventions.key, setup.layout
    code, scale = _LARGEST_CODE[codec.format], _LARGEST_SCALE[codec.scale_bytes]
    values = np.frombuffer(code * (layout.value_bytes // len(code)), np.uint8)
    scales = np.frombuffer(scale * (layout.scale_bytes // max(1, len(scale))), np.uint8)
    return _for_rows(setup, np.concatenate([values, scales]))


def winning_records(setup: Setup) -> np.ndarray:
    """uint8 [rows, record_bytes]: for each row a key along the query of its heaviest head, and large."""
    _, codes, weights = setup.scorer_input
    codec, head_dim = setup.conventions.key, setup.inputs.geometry.head_dim
    query = query_values(codes, setup.conventions, head_dim)[np.arange(len(codes)), weights.argmax(axis=1)]
    largest = np.abs(query).max(axis=1, keepdims=True, initial=0.0)
    key = query * (WINNING_SIZE / np.where(largest > 0, largest, 1.0))
    return pack_record(quantise(key.astype(np.float32), codec), codec)


def page_images(records: np.ndarray, setup: Setup) -> np.ndarray:
    """uint8 [rows, page_bytes]: pages whose every slot holds a row's record."""
    layout = setup.layout
    images = np.zeros((records.shape[0], layout.page_bytes), np.uint8)
    images[:, layout.addresses] = records[:, None, :]
    return images


FILLS: dict[str, Callable[[Setup], np.ndarray]] = {
    "NaN": nan_records,
    "huge values": huge_records,
    "winning keys": winning_records,
}
"""Kinds of poison by the name that a report gives them."""


def _for_rows(setup: Setup, record: np.ndarray) -> np.ndarray:
    return np.tile(record, (setup.inputs.rows, 1))

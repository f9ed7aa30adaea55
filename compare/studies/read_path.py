"""What a read path asks the allocator for: tensors with a lifetime, and the peak they add up to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.geometry import Geometry

KINDS = ("gather", "head-axis", "logits", "other")
"""Kinds of tensors: keys copied for each row, products with a head axis, one number a (row, key), the rest."""


@dataclass(frozen=True)
class ReadSizes:
    """``rows`` query rows that each search all ``keys`` keys of one request, stored by ``codec``."""

    rows: int
    keys: int
    geometry: Geometry
    codec: Codec

    def __post_init__(self) -> None:
        for name in ("rows", "keys"):
            if getattr(self, name) < 1:
                raise ValueError(f"`ReadSizes({name}=...)` should be at least 1, got {getattr(self, name)}")

    @property
    def pages(self) -> int:
        """Pages that hold the keys."""
        return -(-self.keys // self.geometry.page_size)

    @property
    def padded(self) -> int:
        """Keys on those pages, those past the end included."""
        return self.pages * self.geometry.page_size

    @property
    def record(self) -> int:
        """Bytes of one stored key."""
        return self.codec.record_bytes(self.geometry.head_dim)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the pages, for one layer."""
        return self.padded * self.record

    @property
    def query_bytes(self) -> int:
        """Bytes of the rows' query codes and float32 head weights."""
        return self.rows * self.geometry.heads * (self.record + 4)


@dataclass(frozen=True)
class Request:
    """One tensor that a path asks for.

    ``last``: name of the latest request made while this tensor is still held; None if it is held to
    the end. ``source``: the line that asks, or where it is described. ``kind``: one of ``KINDS``.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    item_bytes: int
    source: str
    last: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the tensor's storage."""
        return prod(self.shape) * self.item_bytes


@dataclass(frozen=True)
class Footprint:
    """``peak``: most bytes held at once, inputs not counted. ``largest``: bytes of the largest single
    request; ``names`` and ``sources`` of all requests of that size, in the order they are made."""

    peak: int
    largest: int
    names: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class ReadPath:
    """One way to score rows against a cache: ``requests(sizes)`` in the order they are made.

    ``formats``: the formats (``formats.FORMATS``) that it reads. ``basis``: how the list was obtained.
    """

    name: str
    what: str
    formats: tuple[str, ...]
    requests: Callable[[ReadSizes], Sequence[Request]]
    basis: str


def footprint(requests: Sequence[Request]) -> Footprint:
    """Peak and largest of ``requests``; ``ValueError`` for none, or a ``last`` that names no later one."""
    if not requests:
        raise ValueError("`footprint(requests=...)` should hold at least one request, got none")
    order = {request.name: i for i, request in enumerate(requests)}
    held = [0] * len(requests)
    for i, request in enumerate(requests):
        end = len(requests) - 1 if request.last is None else order.get(request.last, -1)
        if end < i:
            raise ValueError(f"`Request(last=...)` of {request.name!r} should name a later one, got {request.last!r}")
        for at in range(i, end + 1):
            held[at] += request.bytes
    largest = max(request.bytes for request in requests)
    most = [request for request in requests if request.bytes == largest]
    return Footprint(max(held), largest, tuple(r.name for r in most), tuple(r.source for r in most))


@functools.cache
def source_line(function: Callable[..., Any], statement: str) -> str:
    """``module:line`` of the one line of ``function`` that holds ``statement``.

    ``ValueError`` when the function has no such line or several: a model that describes other code.
    """
    lines, first = inspect.getsourcelines(function)
    at = [first + i for i, line in enumerate(lines) if statement in line]
    if len(at) != 1:
        raise ValueError(
            f"`source_line(statement=...)` should be on one line of {function.__name__}, got {statement!r}"
        )
    return f"{function.__module__}:{at[0]}"

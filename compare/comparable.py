"""Whether two caches can be compared at all, and if not, which field says so."""

from __future__ import annotations

from dataclasses import dataclass

from dsa_crosscheck.compare.setup import Setup


@dataclass(frozen=True)
class CacheDescription:
    """What must agree before the bytes of two paged caches mean the same.

    ``lengths``: keys of each request; ``page_size`` tokens; ``format`` and ``scale`` as in ``Codec``;
    ``page_order`` as in ``Conventions``; ``pages``: each request's list of physical pages. ``ValueError``
    when ``pages`` has not one list a request.
    """

    lengths: tuple[int, ...]
    page_size: int
    format: str
    scale: str | None
    page_order: str
    pages: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.pages) != len(self.lengths):
            raise ValueError(
                f"`CacheDescription(pages=...)` should have {len(self.lengths)} lists, one a request, "
                f"got {len(self.pages)}"
            )


def describe(setup: Setup) -> CacheDescription:
    """The cache that the reference fills: its pages are the entries of the block table that are set."""
    inputs, key = setup.inputs, setup.conventions.key
    pages = tuple(tuple(int(page) for page in row if page >= 0) for row in inputs.block_table)
    lengths = tuple(int(count) for count in inputs.key_counts)
    return CacheDescription(
        lengths, inputs.geometry.page_size, key.format, key.scale, setup.conventions.page_order, pages
    )


def disagreement(source: CacheDescription, destination: CacheDescription) -> str:
    """The first field in which two caches differ, as a sentence; empty when they can be compared.

    Physical page numbers may differ, since each cache has a block table of its own; how many pages
    each request has may not.
    """
    if len(source.lengths) != len(destination.lengths):
        return _differ("number of requests", len(source.lengths), len(destination.lengths))
    for request, (mine, theirs) in enumerate(zip(source.lengths, destination.lengths, strict=True)):
        if mine != theirs:
            return _differ(f"length of request {request}", mine, theirs)
    for name in ("page_size", "format", "scale", "page_order"):
        mine, theirs = getattr(source, name), getattr(destination, name)
        if mine != theirs:
            return _differ(name, mine, theirs)
    for length, here, there in zip(source.lengths, source.pages, destination.pages, strict=True):
        if len(here) != len(there):
            return (
                f"source and destination page lists differ in length: {len(here)} vs {len(there)} "
                f"at logical length {length}"
            )
    return ""


def _differ(field: str, source: object, destination: object) -> str:
    return f"source and destination differ in {field}: {source} vs {destination}"

"""The inputs of one cross-check: plain arrays, whatever made them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from dsa_crosscheck.reference.geometry import Geometry

Shape = tuple[str | int, ...]


def _array(dtype: type, *shape: str | int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape}


@dataclass(frozen=True)
class Inputs:
    """One batch of requests with paged index keys, and the query rows that search them.

    Arrays are C-contiguous numpy; floats are finite float32. Sizes: K stored keys, R query rows,
    Q requests, P raw positions covered by the RoPE table.

    - ``pooled`` [K, head_dim]: keys before the norm.
    - ``norm_weight``, ``norm_bias`` [head_dim]: the bias acts only under LayerNorm.
    - ``rope_table`` [P, rope_dim]: cos, sin of each pair, interleaved (c0, s0, c1, s1, ...).
    - ``key_index`` [K]: the key's place in its own request (0 = oldest); ``key_request`` [K].
    - ``slots`` [K]: page * page_size + offset, or negative: the key is not stored.
    - ``pages``: number of physical pages in the cache.
    - ``query`` [R, heads, head_dim], ``gate`` [R, heads], ``query_positions`` [R] (raw tokens).
    - ``block_table`` [Q, max_pages]: physical page of each logical page, -1 past the end.
    - ``request_of_row`` [R]; ``key_counts`` [Q]: keys stored per request.
    - ``kv_score`` [T, 4 * head_dim] and ``position_bias`` [ratio, 2 * head_dim]: a stretch of raw
      projections of one request from position 0, for the pooling stage; both None without one.

    ``ValueError`` names the array, what was expected and what came: dtype, shape, a value that is
    not finite, a page, slot, position or request out of range, a slot used twice, or a slot that
    disagrees with the block table.
    """

    geometry: Geometry
    pages: int
    pooled: np.ndarray = field(metadata=_array(np.float32, "keys", "head_dim"))
    norm_weight: np.ndarray = field(metadata=_array(np.float32, "head_dim"))
    norm_bias: np.ndarray = field(metadata=_array(np.float32, "head_dim"))
    rope_table: np.ndarray = field(metadata=_array(np.float32, "positions", "rope_dim"))
    key_index: np.ndarray = field(metadata=_array(np.int64, "keys"))
    key_request: np.ndarray = field(metadata=_array(np.int32, "keys"))
    slots: np.ndarray = field(metadata=_array(np.int64, "keys"))
    query: np.ndarray = field(metadata=_array(np.float32, "rows", "heads", "head_dim"))
    gate: np.ndarray = field(metadata=_array(np.float32, "rows", "heads"))
    query_positions: np.ndarray = field(metadata=_array(np.int64, "rows"))
    block_table: np.ndarray = field(metadata=_array(np.int32, "requests", "max_pages"))
    request_of_row: np.ndarray = field(metadata=_array(np.int32, "rows"))
    key_counts: np.ndarray = field(metadata=_array(np.int64, "requests"))
    kv_score: np.ndarray | None = field(default=None, metadata=_array(np.float32, "tokens", "4*head_dim"))
    position_bias: np.ndarray | None = field(default=None, metadata=_array(np.float32, "ratio", "2*head_dim"))

    def __post_init__(self) -> None:
        sizes = self._sizes()
        for spec in fields(self):
            if not spec.metadata:
                continue
            array = getattr(self, spec.name)
            if array is None:
                continue
            _check_array(spec.name, array, np.dtype(spec.metadata["dtype"]), spec.metadata["shape"], sizes)
        if (self.kv_score is None) != (self.position_bias is None):
            raise ValueError("`Inputs(kv_score=..., position_bias=...)`: give both or neither")
        if not isinstance(self.pages, int) or self.pages < 0:
            raise ValueError(f"`Inputs(pages=...)` should be a non-negative integer, got {self.pages!r}")
        self._check_values(sizes)

    def _sizes(self) -> dict[str, int]:
        g = self.geometry
        return {
            "heads": g.heads,
            "head_dim": g.head_dim,
            "rope_dim": g.rope_dim,
            "ratio": g.compress_ratio,
            "4*head_dim": 4 * g.head_dim,
            "2*head_dim": 2 * g.head_dim,
        }

    def _check_values(self, sizes: dict[str, int]) -> None:
        g = self.geometry
        last_position = (self.key_index + 1) * g.compress_ratio - 1
        _check_range("key_request", self.key_request, 0, sizes["requests"])
        _check_range("request_of_row", self.request_of_row, 0, sizes["requests"])
        _check_range("block_table", self.block_table, -1, self.pages)
        _check_range("slots", self.slots, None, self.pages * g.page_size)
        _check_range("query_positions", self.query_positions, 0, sizes["positions"])
        _check_range("key_index", self.key_index, 0, None)
        _check_range("last raw position of key_index", last_position, 0, sizes["positions"])
        _check_range("key_counts", self.key_counts, 0, sizes["max_pages"] * g.page_size + 1)
        stored = self.slots >= 0
        if np.unique(self.slots[stored]).size != int(stored.sum()):
            raise ValueError("`Inputs(slots=...)` should name each slot once, got a slot that two keys share")
        # One unset page past the end stands for every page that the table does not have.
        table = np.pad(self.block_table, ((0, 0), (0, 1)), constant_values=-1)
        page = table[self.key_request, np.minimum(self.key_index // g.page_size, sizes["max_pages"])].astype(np.int64)
        expected = page * g.page_size + self.key_index % g.page_size
        wrong = stored & (expected != self.slots)
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            place = f"belongs at slot {expected[k]}" if page[k] >= 0 else "has no page there"
            raise ValueError(f"`Inputs(slots=...)` should follow the block table: key {k} {place}, got {self.slots[k]}")

    @property
    def rows(self) -> int:
        """Number of query rows."""
        return self.query.shape[0]

    @property
    def keys(self) -> int:
        """Number of keys, stored or skipped."""
        return self.pooled.shape[0]


def _check_array(name: str, array: object, dtype: np.dtype, shape: Shape, sizes: dict[str, int]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != len(shape):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"`Inputs({name}=...)` should be a numpy {dtype} array {list(shape)}, got {got}")
    for axis, length in zip(shape, array.shape, strict=True):
        expected = sizes.setdefault(axis, length) if isinstance(axis, str) else axis
        if length != expected:
            raise ValueError(f"`Inputs({name}=...)` should have {axis} = {expected}, got shape {array.shape}")
    if dtype.kind == "f" and not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"`Inputs({name}=...)` should be finite, got {array[at]} at {at}")


def _check_range(name: str, array: np.ndarray, low: int | None, high: int | None) -> None:
    bad = np.zeros(array.shape, dtype=bool)
    if low is not None:
        bad |= array < low
    if high is not None:
        bad |= array >= high
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        bounds = f"at least {low}" if high is None else f"below {high}" if low is None else f"in [{low}, {high})"
        raise ValueError(f"`Inputs({name}=...)` should be {bounds}, got {array[at]} at {at}")

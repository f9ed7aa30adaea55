"""Candidate ``transformers-v4``: the indexer that Hugging Face publishes, in float32 on the CPU.

The library computes pooling, norm, RoPE, scoring and selection inside one ``forward``, and separates
some stages and not others. Offered as stages are those that ``forward`` itself produces from a stage's
own inputs: ``pool``, ``store_keys`` and ``select``. Head weights never exist with the scale factors in
them (the library multiplies products by head_dim^-1/2 and gates by heads^-1/2), so neither a query with
weights nor scores from given weights can be had from it; ``run`` instead gives what hooks saw of one
end-to-end run. ``transformers_hidden`` runs the same class from hidden states.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from dsa_crosscheck.compare.candidates.transformers_indexer import (
    Columns,
    GivenScores,
    TableRotary,
    build_indexer,
    indexer_config,
    new_cache,
    observed,
    padded,
    substituted,
)
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.layout import PageLayout
from dsa_crosscheck.reference.presets import preset

_CHUNK_TOKENS = 512
_CHUNK_PRODUCTS = 1 << 26
"""Head products of one call: rows * keys * heads, 256 MiB of float32."""


class TransformersV4:
    """``DeepseekV4Indexer`` fed by stand-ins for its projections, and for its rotary embedding by a table.

    ``conventions`` None or its own: it can follow no others. ``geometry``: sizes of the module; page size
    and topk come with each call. Raises ``ValueError`` for other conventions, or for a ``compress_ratio``
    of 1, which the published class is not for; ``ImportError`` without transformers.
    """

    name = "transformers-v4"

    def __init__(self, conventions: Conventions | None = None, geometry: Geometry | None = None) -> None:
        own = preset(self.name)
        if conventions is not None and conventions != own.conventions:
            raise ValueError(
                f"`TransformersV4(conventions=...)` should be None or the preset {self.name!r}, got {conventions}"
            )
        self.conventions = own.conventions
        self.geometry = geometry or own.geometry
        if self.geometry.compress_ratio == 1:
            raise ValueError("`TransformersV4(geometry=...)` should have compress_ratio of at least 2, got 1")
        dim = self.geometry.head_dim
        self._config = indexer_config(self.geometry, 4 * dim + self.geometry.heads, self.conventions.norm_eps)
        self._indexer = build_indexer(self._config)
        self._indexer.kv_proj = Columns(0, 2 * dim)
        self._indexer.gate_proj = Columns(2 * dim, 4 * dim)
        self._indexer.scorer.weights_proj = Columns(4 * dim, None)
        self._indexer.q_b_proj = torch.nn.Identity()

    def pool(self, kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
        """Pooled keys, float32 [tokens // ratio, head_dim]: what ``forward`` hands to its norm.

        ``kv_score`` [tokens, 4 * head_dim]: overlap values, own values, overlap scores, own scores, of one
        request from position 0; ``position_bias`` [ratio, 2 * head_dim].
        """
        dim, ratio = self.geometry.head_dim, self.geometry.compress_ratio
        _expect("pool(kv_score=...)", kv_score, (kv_score.shape[0], 4 * dim))
        _expect("pool(position_bias=...)", position_bias, (ratio, 2 * dim))
        self._indexer.position_bias.copy_(position_bias)
        cache = new_cache(self._config)
        with observed(self._indexer) as seen:
            for start in range(0, kv_score.shape[0], _CHUNK_TOKENS):
                self._key_pass(kv_score[start : start + _CHUNK_TOKENS], start, cache)
        return seen.joined("pooled", dim)

    def store_keys(
        self,
        pooled: torch.Tensor,
        norm_weight: torch.Tensor,
        rope_table: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
    ) -> None:
        """Write keys after norm and RoPE to ``cache``, uint8 [pages, page_bytes], as float32.

        ``pooled`` [keys, head_dim]; ``positions`` [keys]: any raw position of the key's group, from which
        ``forward`` gets the group and its own rule the rotary position; ``slots`` [keys], negative = skip.
        The library has no paged cache: only the numbers are its own, the bytes are laid out here.
        """
        dim, ratio = self.geometry.head_dim, self.geometry.compress_ratio
        _expect("store_keys(pooled=...)", pooled, (pooled.shape[0], dim))
        _expect("store_keys(norm_weight=...)", norm_weight, (dim,))
        _expect("store_keys(rope_table=...)", rope_table, (rope_table.shape[0], self.geometry.rope_dim))
        keys = self._keys(pooled, norm_weight, rope_table, positions // ratio)["keys"]
        kept = slots >= 0
        record = self.conventions.key.record_bytes(dim)
        size = cache.shape[1] // record
        layout = PageLayout(size, record, 0, self.conventions.page_order)
        address = torch.from_numpy(layout.addresses)[slots[kept] % size]
        cache[(slots[kept] // size)[:, None], address] = keys[kept].contiguous().view(torch.uint8)

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        """Selected indices, int32 [rows, topk], from ``scores`` [rows, max_length] and visible ``lengths`` [rows].

        ``forward`` masks, ranks and marks as it does for one token a row at raw position length * ratio. Its
        result has min(topk, max_length) columns; the rest are -1 here. NaN within the length ranks first.
        """
        rows, width = scores.shape
        dim = self.geometry.head_dim
        cache = new_cache(self._config)
        cache.layers[0].compressed_kv["indexer"] = scores.new_zeros(1, width, dim).expand(rows, -1, -1)
        self._indexer.index_topk = topk
        with substituted(self._indexer, "scorer", GivenScores(scores[:, None])):
            chosen = self._indexer(
                scores.new_zeros(rows, 1, 4 * dim),
                scores.new_zeros(rows, 1, dim),
                (lengths.long() * self.geometry.compress_ratio)[:, None],
                cache,
                0,
            )
        return padded(chosen[:, 0], topk)

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """One end-to-end run on ``inputs``, each row as a decoding step over its request's keys.

        Returns ``normed`` and ``keys`` [K, head_dim] (before and after RoPE), ``query`` [R, heads, head_dim]
        after RoPE, ``scores`` float32 [R, max keys] before the causal mask (-inf past a request's keys),
        and ``selection`` int32 [R, topk] (padded as in ``select``). Pooled keys are fed as groups with one
        token of weight exactly 1. ``ValueError`` when sizes differ from this candidate's, or when some key
        of a request is not there: the library's cache has no gaps.
        """
        self._check(inputs)
        geometry, rows = inputs.geometry, inputs.rows
        table = torch.from_numpy(inputs.rope_table)
        windows = torch.from_numpy(inputs.key_index)
        result = self._keys(torch.from_numpy(inputs.pooled), torch.from_numpy(inputs.norm_weight), table, windows)
        width = int(inputs.key_counts.max(initial=0))
        result["query"] = torch.empty(rows, geometry.heads, geometry.head_dim)
        result["scores"] = torch.full((rows, width), -torch.inf)
        result["selection"] = torch.empty(rows, geometry.topk, dtype=torch.int32)
        self._indexer.index_topk = geometry.topk
        with substituted(self._indexer, "rotary_emb", TableRotary(table)):
            for request in np.unique(inputs.request_of_row):
                keys = result["keys"][torch.from_numpy(inputs.key_request == request)]
                mine = torch.from_numpy(np.flatnonzero(inputs.request_of_row == request))
                step = max(1, _CHUNK_PRODUCTS // (geometry.heads * max(1, len(keys))))
                for some in mine.split(step):
                    self._decode(inputs, keys, some, result)
        return result

    def _key_pass(self, kv_score: torch.Tensor, first: int, cache: object) -> None:
        """``forward`` over tokens whose queries do not matter: one head of zeros."""
        tokens = kv_score.shape[0]
        states = torch.cat([kv_score, kv_score.new_zeros(tokens, 1)], dim=1)[None]
        query = kv_score.new_zeros(1, tokens, self.geometry.head_dim)
        self._indexer(states, query, torch.arange(first, first + tokens)[None], cache, 0)

    def _keys(
        self, pooled: torch.Tensor, norm_weight: torch.Tensor, rope_table: torch.Tensor, windows: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``normed`` and ``keys`` of given pooled keys; ``windows`` [keys] numbers their groups.

        Each group is fed as one token with score 0 that carries the key, all other scores -inf: the
        softmax gives it weight 1 and the pooled key is that number again. Runs of successive groups go
        through one call, which starts where the cache layer says the run's first group is.
        """
        ratio, dim = self.geometry.compress_ratio, self.geometry.head_dim
        self._indexer.kv_norm.weight.copy_(norm_weight)
        self._indexer.position_bias.zero_()
        seen_in_runs: dict[str, list[torch.Tensor]] = {"normed": [pooled[:0]], "keys": [pooled[:0]]}
        jumps = (torch.nonzero(torch.diff(windows) != 1)[:, 0] + 1).tolist()
        breaks = [0, *jumps, len(windows)] if len(windows) else []
        with substituted(self._indexer, "rotary_emb", TableRotary(rope_table)):
            for start, stop in pairwise(breaks):
                for some in torch.arange(start, stop).split(_CHUNK_TOKENS // ratio):
                    fed = pooled.new_zeros(len(some), ratio, 4 * dim)
                    fed[:, 0, dim : 2 * dim] = pooled[some]
                    fed[:, :, 2 * dim :] = -torch.inf
                    fed[:, 0, 3 * dim :] = 0.0
                    first = int(windows[some[0]])
                    cache = new_cache(self._config)
                    cache.layers[0].entry_count["indexer"] = first
                    with observed(self._indexer) as seen:
                        self._key_pass(fed.flatten(0, 1), first * ratio, cache)
                    seen_in_runs["normed"].append(seen.joined("normed", dim))
                    seen_in_runs["keys"].append(seen.last("keys")[0])
        return {name: torch.cat(tensors) for name, tensors in seen_in_runs.items()}

    def _decode(self, inputs: Inputs, keys: torch.Tensor, rows: torch.Tensor, result: dict[str, torch.Tensor]) -> None:
        """``forward`` with one token for each of ``rows`` of a request, and its keys in the cache."""
        number = len(rows)
        gate = torch.from_numpy(inputs.gate)[rows]
        states = torch.cat([gate.new_zeros(number, 4 * self.geometry.head_dim), gate], dim=1)[:, None]
        cache = new_cache(self._config)
        cache.layers[0].compressed_kv["indexer"] = keys.expand(number, -1, -1)
        query = torch.from_numpy(inputs.query)[rows].reshape(number, 1, -1)
        position_ids = torch.from_numpy(inputs.query_positions)[rows][:, None]
        with observed(self._indexer) as seen:
            chosen = self._indexer(states, query, position_ids, cache, 0)
        result["query"][rows] = seen.last("query")[:, 0]
        result["scores"][rows, : len(keys)] = seen.last("scores")[:, 0]
        result["selection"][rows] = padded(chosen[:, 0], inputs.geometry.topk)

    def _check(self, inputs: Inputs) -> None:
        for size in ("heads", "head_dim", "rope_dim", "compress_ratio"):
            expected, got = getattr(self.geometry, size), getattr(inputs.geometry, size)
            if got != expected:
                raise ValueError(f"`run(inputs=...)` should have {size}={expected}, got {got}")
        for request, count in enumerate(inputs.key_counts):
            mine = inputs.key_index[inputs.key_request == request]
            stored = inputs.slots[inputs.key_request == request] >= 0
            if not stored.all() or not np.array_equal(mine, np.arange(count)):
                raise ValueError(
                    f"`run(inputs=...)` should store keys 0 to {count - 1} of request {request} in order, without gaps"
                )


def _expect(argument: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"`{argument}` should have shape {list(shape)}, got {list(tensor.shape)}")

"""What an implementation offers to be checked."""

from __future__ import annotations

from typing import Any, Protocol

from dsa_crosscheck.reference.conventions import Conventions

STAGES = ("pool", "store_keys", "encode_query", "score", "select")
"""Methods a candidate may have, any subset, in the order of the data's path."""

FUSED = "run"
"""Method of an implementation that does not separate the stages."""


class Candidate(Protocol):
    """An implementation under test.

    ``name`` is shown in reports, ``conventions`` says what it means to compute, and an optional
    ``device`` (default ``cpu``) is where its tensors go. It has any of these methods on torch
    tensors (float32 unless said otherwise):

    - ``pool(kv_score [tokens, 4*head_dim], position_bias [ratio, 2*head_dim])
      -> [tokens // ratio, head_dim]``: columns are overlap kv, own kv, overlap score, own score.
    - ``store_keys(pooled [keys, head_dim], norm_weight [head_dim], rope_table [positions, rope_dim],
      positions int64 [keys], slots int64 [keys], cache uint8 [pages, page_bytes]) -> None``:
      writes the cache in place; a negative slot is skipped. Under LayerNorm ``norm_weight`` is
      [2, head_dim]: weight, then bias.
    - ``encode_query(query [rows, heads, head_dim], gate [rows, heads], rope_table,
      positions int64 [rows]) -> (codes uint8 [rows, heads, bytes], weights [rows, heads])``.
    - ``score(codes, weights, cache, block_table int32 [requests, max_pages],
      request_of_row int32 [rows], lengths int32 [rows]) -> [rows, max_length]``: columns past a
      row's length are not read.
    - ``select(scores [rows, n], lengths int32 [rows], topk: int) -> int32 [rows, topk]``.
    - ``score_into(codes, weights, cache, block_table, request_of_row, lengths,
      out [rows, >= max_length]) -> None``, beside ``score``: the same scores into memory of the
      caller. Rows of ``out`` may lie further apart than they are long, at any distance; no cell
      outside the view is written.
    - ``run(inputs: Inputs) -> dict``, instead of or beside the others, for an implementation that
      fuses them: ``selection`` int32 [rows, topk], and ``keys``, ``query``, ``cache``, ``scores`` if
      it shows them. It then stands for the end-to-end comparison.

    Optional attributes: ``returns``, ``logical`` (default) or ``physical``: whether ``run`` selects
    indices within the row's request, or slots page * page_size + offset; ``cache``, a
    ``CacheDescription`` of the cache it works on, refused when the inputs' cache differs; ``package``,
    name and version of the library that it calls, which a report notes; ``accumulator``, the name of the
    accumulator model (``reference.models``) that its scores are judged by unless the caller names one; by
    default the one that the conventions imply. A report then says how they stand under that one too.

    Every method may be called again with the same arguments, with rows in another order or fewer of
    them, and with anything at all in bytes that no row may read.
    """

    name: str
    conventions: Conventions


def offers(candidate: Any, stage: str) -> bool:
    """Whether the candidate has the method of ``stage``."""
    return callable(getattr(candidate, stage, None))

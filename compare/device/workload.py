"""Every kernel once on a small case: what compute-sanitizer watches.

``python -m dsa_crosscheck.compare.device.workload`` runs on the GPU and prints the name of each launch after
it is done. Every input is made on the host and copied: what other kernels write, a sanitizer that is limited
to ours would take for unwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import Any

import torch

from dsa_crosscheck.compare.device.batches import ScoreShape, score_batch
from dsa_crosscheck.compare.device.sizes import HEAD_DIM, PAGE, PRESET_OF, RATIO, ROPE_DIM
from dsa_crosscheck.compare.studies.formats import FORMATS, STORED
from dsa_crosscheck.cuda_impl.ops.latent import latent_page_bytes, store_latent_decode, store_latent_extend
from dsa_crosscheck.cuda_impl.ops.pool import pool
from dsa_crosscheck.cuda_impl.ops.query import QUERY_POINTS, encode_query
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score import paged_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import SHARE_WORDS
from dsa_crosscheck.cuda_impl.ops.store import store_decode, store_extend
from dsa_crosscheck.cuda_impl.ops.topk import topk
from dsa_crosscheck.reference.codec_spec import Codec

ROWS = 21
POSITIONS = 128
QUERY_CODECS = {**{name: FORMATS[name] for name in STORED}, "fp8-unit": Codec("fp8-e4m3fn", "unit")}
LATENT_CODECS = {"fp8": Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax"), "bf16": Codec("bf16")}
SCORED = {
    "rows 1": ScoreShape(3, 200),
    "rows 2": ScoreShape(2, 200, 2),
    "one request": ScoreShape(1, 200),
    "many tiles": ScoreShape(100, 4160),
    "many tiles of two rows": ScoreShape(100, 4160, 2),
}
"""Many tiles: a block has more than the Hopper scorer's ring holds, of several rows."""
BY_MMA = ("rows 2", "many tiles")
"""What the matrix unit's common instructions score once more where the GPU has better ones."""
Launch = tuple[str, Callable[[], object]]


def launches(device: str) -> Iterator[Launch]:
    """Names and calls, their inputs on ``device``."""
    torch.manual_seed(0)
    yield from _stores(device)
    yield from _queries(device)
    yield from _plans(device)
    yield from _scores(device)
    yield from _selections(device)


def _stores(device: str) -> Iterator[Launch]:
    """Both plans of both caches, with padding rows and skipped slots."""
    lengths = (torch.arange(ROWS) % 8 * RATIO).int()
    slots = torch.randperm(ROWS)
    slots[::5] = -1
    plan = torch.stack([lengths + RATIO, torch.arange(ROWS).int()], dim=1)
    plan[3] = -1
    targets: list[tuple[str, int, str, Codec, int, Any, Any]] = [
        (
            "store",
            HEAD_DIM,
            name,
            FORMATS[name],
            PAGE * FORMATS[name].record_bytes(HEAD_DIM),
            store_extend,
            store_decode,
        )
        for name in STORED
    ]
    targets += [
        ("store_latent", 512, name, codec, latent_page_bytes(codec, PAGE), store_latent_extend, store_latent_decode)
        for name, codec in LATENT_CODECS.items()
    ]
    table = torch.randn(POSITIONS, ROPE_DIM)
    for kind, dim, name, codec, page_bytes, extend, decode in targets:
        common = [t.to(device) for t in (torch.randn(ROWS, dim), torch.rand(dim), table)]
        cache = torch.zeros(2, page_bytes, dtype=torch.uint8).to(device)
        options = {"codec": codec, "page_size": PAGE, "ratio": RATIO, "norm_eps": 1e-6}
        for how, store, rows in (("extend", extend, plan), ("decode", decode, lengths)):
            given = (*common, rows.to(device), slots.to(device), cache)
            yield f"{kind}_{how} {name}", partial(store, *given, **options)


def _queries(device: str) -> Iterator[Launch]:
    kv_score, bias = torch.randn(4 * ROWS + 3, 4 * HEAD_DIM).to(device), torch.randn(4, 2 * HEAD_DIM).to(device)
    yield "pool", partial(pool, kv_score, bias)
    inputs = [
        t.to(device)
        for t in (
            torch.randn(3, 7, HEAD_DIM),
            torch.randn(3, 7),
            torch.randn(POSITIONS, ROPE_DIM),
            torch.arange(3) * 40,
        )
    ]
    for name, codec in QUERY_CODECS.items():
        points = QUERY_POINTS if name.startswith("fp4") else frozenset()
        yield f"encode_query {name}", partial(encode_query, *inputs, codec=codec, bf16_points=points)


def _plans(device: str) -> Iterator[Launch]:
    """More groups than a block has threads, and more shares than tiles."""
    for rows in (1, 2):
        for blocks in (132, 4000):
            yield f"plan_scores of {rows} for {blocks}", partial(_plan, rows, blocks, device)


def _plan(rows: int, blocks: int, device: str) -> torch.Tensor:
    lengths = (torch.arange(1200) % 150).int()
    lengths[100:300] = 0
    requests = (torch.arange(1200) // rows).int()
    table = torch.randperm(3600).int().view(1200, 3)
    shares = torch.zeros(blocks, SHARE_WORDS, dtype=torch.int32)
    given = [t.to(device) for t in (table, requests, lengths, shares)]
    kernels_for(given[0].device).plan_scores(*given, PAGE, 150, rows)
    return given[3]


def _scores(device: str) -> Iterator[Launch]:
    """One row and two rows a request on whole tiles, and pages that are none; rows of every length, none among them.

    The best unit that there is takes them all, so some are given to the others by name; an emulation has one.
    """
    for kind in PRESET_OF:
        for what, shape in SCORED.items():
            yield f"paged_scores {kind} {what}", partial(_score, kind, shape, PAGE, device)
        for what in BY_MMA:
            yield f"paged_scores {kind} {what} mma", partial(_score, kind, SCORED[what], PAGE, device, unit="mma")
        for page_size in (16, 128):
            yield f"paged_scores {kind} page {page_size}", partial(_score, kind, ScoreShape(4, 256), page_size, device)
        yield f"paged_scores {kind} fma", partial(_score, kind, ScoreShape(4, 256), PAGE, device, unit="fma")
    for unit in (None, "mma"):
        name = f"paged_scores fp4 wide scales{f' {unit}' if unit else ''}"
        yield name, partial(_score, "fp4", ScoreShape(3, 200), PAGE, device, unit=unit, wide=True)


def _score(
    kind: str, shape: ScoreShape, page_size: int, device: str, unit: str | None = None, wide: bool = False
) -> torch.Tensor:
    batch = score_batch(kind, shape, 0, "cpu")
    batch.lengths = torch.linspace(0 if shape.rows > 1 else shape.keys, shape.keys, shape.rows).int()
    codec = batch.conventions.key
    if wide:
        batch.cache[:, PAGE * codec.value_bytes(HEAD_DIM) :: 3] = 1
    if page_size != PAGE:  # the same bytes cut into other pages: other keys, which no sanitizer minds
        batch.cache = batch.cache.reshape(-1, batch.cache.shape[1] // PAGE * page_size)
        batch.block_table = torch.randperm(batch.cache.shape[0]).int().view(shape.requests, -1)
    names = ("codes", "weights", "cache", "block_table", "request_of_row", "lengths")
    moved = [getattr(batch, f.name).contiguous().to(device) for f in fields(batch) if f.name in names]
    return paged_scores(*moved, codec=codec, page_size=page_size, unit=unit if device == "cuda" else None)


def _selections(device: str) -> Iterator[Launch]:
    """Rows that are searched whole, filtered, shared by a cluster and cut into parts; only the first is aligned."""
    for columns in (5001, 12001, 20001, 70001, 270001):
        for what in ("", " plateaus", " equal"):
            for k in (64, 2048):
                yield f"topk {k} of {columns}{what}", partial(_select, columns, what, k, device)


def _select(columns: int, what: str, k: int, device: str) -> torch.Tensor:
    scores = torch.randn(4, columns)
    rows = {"": scores, " plateaus": scores.round(), " equal": torch.ones(4, columns)}[what]
    return topk(rows.to(device), torch.tensor([columns, columns - 2, 100, 0], dtype=torch.int32).to(device), k)


def run(device: str) -> None:
    """Launch everything on ``device`` and print each name once its launch is done."""
    for name, launch in launches(device):
        launch()
        if device == "cuda":
            torch.cuda.synchronize()
        print(f"ran {name}", flush=True)


if __name__ == "__main__":
    run(*(sys.argv[1:] or ["cuda"]))

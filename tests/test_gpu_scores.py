"""On a GPU: scores by each unit against float64, in the cases that a block's roles could lose.

Run by `pytest -m gpu`, on a machine with a CUDA GPU and nvcc.
"""

from __future__ import annotations

import functools

import numpy as np
import paged_bytes
import pytest
import torch
from paged_bytes import CODECS, FP4, PagedCase, assert_within, paged_case

from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.score import launch_scores, paged_scores, planned_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import UNITS, plan_scores
from dsa_crosscheck.cuda_impl.ops.topk import topk
from dsa_crosscheck.reference.codec_spec import Codec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

NAMED = [unit for unit in UNITS if unit is not None]
MANY = [int(n) for n in np.random.default_rng(0).integers(0, 641, 501)]
"""More tiles than all blocks' rings hold, so that a block goes on from row to row; an odd number of rows."""
CASES = {
    "one short row": ([1], 64, None),
    "one row": ([700], 64, None),
    "rows without keys first, between and last": ([0, 1, 63, 0, 64, 65, 700, 0], 64, None),
    "32 heads": ([100, 257, 640], 32, None),
    "3 heads": ([100, 257, 640], 3, None),
    "pairs of unequal length": ([100, 300, 0, 65, 64, 64, 0, 0], 64, [0, 0, 1, 1, 2, 2, 3, 3]),
    "pairs of 3 heads": ([100, 300, 0, 65], 3, [0, 0, 1, 1]),
    "one request of many rows": ([1, 100, 200, 300, 400, 500], 64, [0] * 6),
    "many rows": (MANY, 64, None),
    "many pairs": (MANY[:-1], 64, [i // 2 for i in range(500)]),
}
FEW = [what for what in CASES if not what.startswith("many")]


def allowed(unit: str, codec: Codec, page_size: int, heads: int) -> bool:
    """What the docstring of ``paged_scores`` says of tensors that start evenly."""
    bits = codec.spec.bits
    if unit == "wgmma":
        counts = {4: range(4, 65, 4), 8: range(1, 65), 16: (64,)}
        return torch.cuda.get_device_capability() == (9, 0) and page_size % 64 == 0 and heads in counts[bits]
    return unit == "fma" or (heads <= 160 and (bits == 16 or page_size % 4 == 0))


@functools.lru_cache(1)
def case_of(name: str, page_size: int, what: str) -> PagedCase:
    lengths, heads, requests = CASES[what]
    return paged_case(CODECS[name], page_size, lengths, heads, 1, requests)


def scored(arguments: tuple[torch.Tensor, ...], codec: Codec, page_size: int, unit: str | None) -> torch.Tensor | None:
    """Scores on the GPU; None where the unit does not take these sizes, which it is seen to refuse."""
    given = [a.cuda() for a in arguments]
    if unit is None or allowed(unit, codec, page_size, arguments[0].shape[1]):
        return paged_scores(*given, codec=codec, page_size=page_size, unit=unit)
    with pytest.raises(ValueError, match=rf"paged_scores\(unit=.*got '{unit}'"):
        paged_scores(*given, codec=codec, page_size=page_size, unit=unit)
    return None


def check(case: PagedCase, codec: Codec, page_size: int, unit: str) -> None:
    """Within the bound and the same bits twenty times, or refused where the unit does not take it."""
    first = scored(case.arguments, codec, page_size, unit)
    if first is None:
        return
    assert_within(first.cpu(), case)
    given = [a.cuda() for a in case.arguments]
    options = {"codec": codec, "page_size": page_size, "unit": unit}
    for _ in range(19):
        assert torch.equal(paged_scores(*given, **options).view(torch.int32), first.view(torch.int32))


@pytest.mark.parametrize(("page_size", "what"), [(size, what) for size in (64, 128) for what in CASES])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("unit", NAMED)
def test_scores_are_within_the_bound(name: str, page_size: int, what: str, unit: str) -> None:
    check(case_of(name, page_size, what), CODECS[name], page_size, unit)


@pytest.mark.parametrize(("page_size", "what"), [(size, what) for size in (1, 3, 4, 16, 20, 48) for what in FEW])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("unit", NAMED)
def test_pages_that_are_no_whole_tiles(name: str, page_size: int, what: str, unit: str) -> None:
    check(case_of(name, page_size, what), CODECS[name], page_size, unit)


@pytest.mark.parametrize("heads", [1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 80, 96, 160, 161])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("unit", NAMED)
def test_any_number_of_heads(name: str, heads: int, unit: str) -> None:
    check(paged_case(CODECS[name], 64, [200, 77], heads, heads, [0, 0]), CODECS[name], 64, unit)


@pytest.mark.parametrize("requests", [None, [0, 0, 1, 1]])
@pytest.mark.parametrize("unit", NAMED)
def test_fp4_scales_that_16_bits_cannot_hold(
    requests: list[int] | None, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some keys' and some queries' groups lie further apart than fp16 reaches: those are scored the plain way."""
    real = paged_bytes.random_vectors

    def wide(rng: np.random.Generator, codec: Codec, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        values, scales = real(rng, codec, *shape)
        share = 0.05 if len(shape) == 1 else 0.005  # of keys; of queries, so that some rows have none
        scales[..., 0] = np.where(rng.random(shape) < share, 90, scales[..., 0])
        return values, scales

    monkeypatch.setattr(paged_bytes, "random_vectors", wide)
    check(paged_case(FP4, 64, [500, 300, 64, 700], 64, 2, requests), FP4, 64, unit)


@pytest.mark.parametrize("heads", [5, 32, 64])
@pytest.mark.parametrize("unit", [*NAMED, None])
def test_infinite_bf16_keys(heads: int, unit: str | None) -> None:
    """A product with an infinite key is relu's 0 or infinite, and nothing that is not there makes it NaN."""
    codec = CODECS["bf16"]
    codes, weights, cache, *rest = paged_case(codec, 64, [128], heads, 3).arguments
    negative = torch.full_like(codes.view(torch.bfloat16), -1.0)
    infinite = torch.full_like(cache.view(torch.bfloat16), float("inf"))
    arguments = (negative.view(torch.uint8), weights, infinite.view(torch.uint8), *rest)
    got = scored(arguments, codec, 64, unit)
    assert got is None or torch.equal(got.cpu(), paged_scores(*arguments, codec=codec, page_size=64))


@pytest.mark.parametrize("heads", [4, 20, 64])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("unit", NAMED)
def test_nan_and_infinite_keys(name: str, heads: int, unit: str) -> None:
    """NaN reaches the score through the relu; an infinite element, of bf16 alone, gives what float32 gives."""
    codec = CODECS[name]
    codes, weights, cache, *rest = paged_case(codec, 64, [300, 131], heads, 4).arguments
    rng = np.random.default_rng(heads)
    raw = cache.numpy().copy()
    values = raw[:, : 64 * codec.value_bytes(128)]
    if name == "fp4":
        raw[:, 64 * codec.value_bytes(128) :: 40] = 0xFF
    elif name == "fp8":
        values[rng.random(values.shape) < 0.002] = 0x7F
    else:
        elements = values.view(np.uint16)
        elements[rng.random(elements.shape) < 0.001] = 0x7FC0
        elements[rng.random(elements.shape) < 0.002] = 0xFF80
    arguments = (codes, weights, torch.from_numpy(raw), *rest)
    got = scored(arguments, codec, 64, unit)
    if got is None:
        return
    expected = paged_scores(*arguments, codec=codec, page_size=64)
    assert 0 < int(expected.isnan().sum()) < expected.numel() // 2
    for same in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(same(got.cpu()), same(expected))


@pytest.mark.parametrize("what", ["32 heads", "pairs of unequal length", "many rows", "many pairs"])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("unit", [*NAMED, None])
def test_a_plan_serves_all_layers_of_a_graph(name: str, what: str, unit: str | None) -> None:
    """Layers that differ in queries and keys, captured one after another, give what calls of their own give."""
    codec = CODECS[name]
    codes, weights, cache, *rest = (a.cuda() for a in case_of(name, 64, what).arguments)
    heads = weights.shape[1]
    options = {"codec": codec, "page_size": 64, "unit": unit}
    made = functools.partial(plan_scores, *rest, heads=heads, pages=cache.shape[0], **options)
    if unit is not None and not allowed(unit, codec, 64, heads):
        with pytest.raises(ValueError, match=rf"plan_scores\(unit=.*got '{unit}'"):
            made()
        return
    layers = [(codes.roll(i, 0), weights + i, cache.roll(3 * i, 0)) for i in range(4)]
    expected = [paged_scores(*layer, *rest, **options) for layer in layers]
    plan = made()
    graph = torch.cuda.CUDAGraph()
    planned_scores(*layers[0], plan)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        found = [planned_scores(*layer, plan) for layer in layers]
    for scores in found:
        scores.fill_(torch.nan)
    graph.replay()
    for scores, wanted in zip(found, expected, strict=True):
        assert torch.equal(scores.view(torch.int32), wanted.view(torch.int32))


@pytest.mark.parametrize("unit", [*NAMED, None])
def test_a_kernel_waits_for_the_one_before_it(unit: str | None) -> None:
    """Kernels start early: each reads what the last one wrote, and writes what the last one read, without a pause."""
    codec = CODECS["bf16"]
    codes, weights, cache, *rest = (a.cuda() for a in case_of("bf16", 64, "many rows").arguments)
    plan = plan_scores(*rest, codec=codec, heads=64, page_size=64, pages=cache.shape[0], unit=unit)
    lengths, k = rest[2], 64
    layers = [(codes.roll(i, 0), weights, cache) for i in range(8)]
    expected = torch.stack([topk(planned_scores(*layer, plan), lengths, k) for layer in layers])
    kernels = kernels_for(codes.device)
    scores = torch.empty(len(MANY), plan.width, device="cuda")
    workspace = lengths.new_empty(kernels.topk_workspace(*scores.shape, k, 1))
    found = torch.empty_like(expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer, selected in zip(layers, found, strict=True):
            launch_scores(*layer, plan, scores)
            kernels.topk(scores, lengths, workspace, selected, 1)
    for _ in range(20):
        found.fill_(-2)
        graph.replay()
        assert torch.equal(found, expected)

"""On a GPU: scores of whole 64-token tiles against float64, in the cases that a block's roles could lose.

Run by `pytest -m gpu`, on a machine with a CUDA GPU and nvcc.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paged_bytes import CODECS, FP4, assert_within, paged_case

from dsa_crosscheck.cuda_impl.ops.score import paged_scores

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

MANY = [int(n) for n in np.random.default_rng(0).integers(0, 641, 501)]
"""More tiles than all blocks' rings hold, so that a block goes on from row to row; an odd number of rows."""
CASES = {
    "one short row": ([1], 64, None),
    "one row": ([700], 64, None),
    "rows without keys first, between and last": ([0, 1, 63, 0, 64, 65, 700, 0], 64, None),
    "32 heads": ([100, 257, 640], 32, None),
    "3 heads": ([100, 257, 640], 3, None),
    "pairs of unequal length": ([100, 300, 0, 65, 64, 64, 0, 0], 64, [0, 0, 1, 1, 2, 2, 3, 3]),
    "one request of many rows": ([1, 100, 200, 300, 400, 500], 64, [0] * 6),
    "many rows": (MANY, 64, None),
    "many pairs": (MANY[:-1], 64, [i // 2 for i in range(500)]),
}


def scores_on_gpu(case, codec, page_size: int) -> torch.Tensor:
    return paged_scores(*(a.cuda() for a in case.arguments), codec=codec, page_size=page_size).cpu()


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("page_size", [64, 128])
@pytest.mark.parametrize("what", CASES)
def test_scores_are_within_the_bound(name: str, page_size: int, what: str) -> None:
    lengths, heads, requests = CASES[what]
    case = paged_case(CODECS[name], page_size, lengths, heads, 1, requests)
    assert_within(scores_on_gpu(case, CODECS[name], page_size), case)


@pytest.mark.parametrize("requests", [None, [0, 0, 1, 1]])
def test_fp4_scales_that_16_bits_cannot_hold(requests: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some keys' and some queries' groups lie further apart than fp16 reaches: those are scored the plain way."""
    import paged_bytes

    real = paged_bytes.random_vectors

    def wide(rng: np.random.Generator, codec, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        values, scales = real(rng, codec, *shape)
        scales[..., 0] = np.where(rng.random(shape) < 0.05, 90, scales[..., 0])
        return values, scales

    monkeypatch.setattr(paged_bytes, "random_vectors", wide)
    case = paged_case(FP4, 64, [500, 300, 64, 700], 64, 2, requests)
    assert_within(scores_on_gpu(case, FP4, 64), case)


@pytest.mark.parametrize("heads", [32, 64])
def test_infinite_bf16_keys(heads: int) -> None:
    """A product with an infinite key is relu's 0 or infinite, and nothing that is not there makes it NaN."""
    codec = CODECS["bf16"]
    codes, weights, cache, *rest = paged_case(codec, 64, [128], heads, 3).arguments
    negative = torch.full_like(codes.view(torch.bfloat16), -1.0)
    infinite = torch.full_like(cache.view(torch.bfloat16), float("inf"))
    arguments = (negative.view(torch.uint8), weights, infinite.view(torch.uint8), *rest)
    on_gpu = paged_scores(*(a.cuda() for a in arguments), codec=codec, page_size=64)
    assert torch.equal(on_gpu.cpu(), paged_scores(*arguments, codec=codec, page_size=64))

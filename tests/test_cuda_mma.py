"""Candidate ``cuda-mma`` where there is no GPU: what it refuses to score, which is no fault of the kernels."""

from __future__ import annotations

import pytest
import torch
from paged_bytes import CODECS, paged_case

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.kernels import CudaMma
from dsa_crosscheck.reference.presets import PRESETS

PRESET_OF = {"fp8": "sglang-v4-fp8", "bf16": "sglang-v4-bf16", "fp4": "sglang-v4-fp4"}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU to be found, played by the emulation, which has no matrix unit."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(CudaMma, "device", "cpu")


@pytest.mark.parametrize(
    ("kind", "page_size", "heads", "message"),
    [
        ("fp8", 1, 64, "'cuda-mma' reads pages of a multiple of 16 bytes, got 132"),
        ("fp8", 6, 64, "'cuda-mma' reads pages of a multiple of 16 bytes, got 792"),
        ("fp4", 2, 64, "'cuda-mma' reads pages of a multiple of 16 bytes, got 136"),
        ("fp8", 64, 161, "'cuda-mma' scores up to 160 heads, got 161"),
        ("bf16", 1, 161, "'cuda-mma' scores up to 160 heads, got 161"),
    ],
)
def test_sizes_that_the_unit_does_not_take(played: None, kind: str, page_size: int, heads: int, message: str) -> None:
    candidate = CudaMma(PRESETS[PRESET_OF[kind]].conventions)
    arguments = paged_case(CODECS[kind], page_size, [3], heads, seed=0).arguments
    with pytest.raises(Unsupported, match=message):
        candidate.score(*arguments)


@pytest.mark.parametrize(("kind", "page_size"), [("fp8", 4), ("fp8", 64), ("fp4", 4), ("bf16", 1)])
def test_other_sizes_reach_the_kernel(played: None, kind: str, page_size: int) -> None:
    candidate = CudaMma(PRESETS[PRESET_OF[kind]].conventions)
    arguments = paged_case(CODECS[kind], page_size, [3], 160, seed=0).arguments
    with pytest.raises(ValueError, match=r"paged_scores\(unit=.*got 'mma'") as refused:
        candidate.score(*arguments)
    assert not isinstance(refused.value, Unsupported)

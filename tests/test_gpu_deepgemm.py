"""On a GPU with the package sgl-deep-gemm: its scores explained, its rows mapped, its accumulator and ours measured.

Run by `pytest -m gpu`.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from dsa_crosscheck.compare import crosscheck
from dsa_crosscheck.compare.candidates.deepgemm import DeepGemm
from dsa_crosscheck.compare.candidates.kernels import Cuda
from dsa_crosscheck.compare.device.accumulator import measure_accumulator
from dsa_crosscheck.compare.device.exact_products import FORMATS
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
needs_package = pytest.mark.skipif(find_spec("deep_gemm") is None, reason="needs the package sgl-deep-gemm")


@needs_package
@pytest.mark.parametrize("preset", ["deepgemm-fp8", "sglang-v4-fp8"])
@pytest.mark.parametrize("name", ["gaussian", "outlier", "exact-integers"])
def test_scores_are_explained_by_the_declared_model(preset: str, name: str) -> None:
    conventions = PRESETS[preset].conventions
    report = crosscheck(build_case(name, context=8192, rows=24), DeepGemm(conventions), explain=False)
    assert report.bound == "tensor-core-fp8"
    assert report.verdict.passed, str(report)
    assert any(note.startswith("the candidate declares tensor-core-fp8") for note in report.notes)


@needs_package
def test_rows_in_any_order_and_number_have_the_same_scores() -> None:
    generator = torch.Generator().manual_seed(1)
    rows, pages = 70, 40
    codes = torch.randint(0, 0x70, (rows, 64, 128), generator=generator).to(torch.uint8)
    cache = torch.randint(0, 0x70, (pages, 8448), generator=generator).to(torch.uint8)
    cache[:, 8192:] = (torch.rand(pages, 64, generator=generator) + 0.5).view(torch.uint8)
    table = torch.randperm(pages, generator=generator).view(4, 10).int()
    request = torch.randint(0, 4, (rows,), generator=generator).int()
    lengths = torch.randint(0, 641, (rows,), generator=generator).int()
    lengths[:3] = torch.tensor([0, 640, 1])
    weights = torch.randn(rows, 64, generator=generator)
    candidate = DeepGemm(None)

    def scores(some: torch.Tensor) -> np.ndarray:
        given = (codes[some], weights[some], cache, table, request[some], lengths[some])
        return candidate.score(*(tensor.cuda() for tensor in given)).cpu().numpy()

    order = torch.randperm(rows, generator=generator)
    whole, apart = scores(torch.arange(rows)), scores(order)
    alone = [scores(torch.tensor([row])) for row in range(8)]
    for at, row in enumerate(order.tolist()):
        seen = int(lengths[row])
        assert np.array_equal(whole[row, :seen], apart[at, :seen])
        if row < 8:
            assert np.array_equal(whole[row, :seen], alone[row][0, :seen])


@pytest.mark.parametrize("kind", FORMATS)
def test_our_matrix_unit_keeps_what_its_model_says(kind: str) -> None:
    found = measure_accumulator(Cuda(PRESETS[FORMATS[kind]].conventions))
    assert found["kept_bits"] >= model("tensor-core-fp16").accumulator_bits
    assert found["groups"] is not None, found["observations"]
    assert min(len(group) for group in found["groups"]) >= model("tensor-core-fp16").accumulate


@needs_package
def test_fp8_instructions_keep_what_their_model_says() -> None:
    found = measure_accumulator(DeepGemm(PRESETS[FORMATS["fp8"]].conventions))
    row = model("tensor-core-fp8")
    assert row.accumulator_bits <= found["kept_bits"] < 24
    assert found["groups"] is not None, found["observations"]

"""SGLang's own kernels on a GPU, judged. Run by `pytest -m gpu` where sglang 0.5.23 is installed beside nvcc."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from candidates import judge

from dsa_crosscheck.compare import crosscheck
from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.sglang import POOL_TOKENS, Sglang
from dsa_crosscheck.compare.candidates.sglang_build import find_sources
from dsa_crosscheck.compare.candidates.sglang_launch import StoreArguments, store_launch
from dsa_crosscheck.compare.candidates.sglang_plans import MOST_RAGGED, decode_plan
from dsa_crosscheck.compare.selection_certificate import SelectionCertificate, certify_selection
from dsa_crosscheck.cuda_impl.ops.store import store_keys
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.bounds import pool_bound
from dsa_crosscheck.reference.cache import key_layout, read_records
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.record import unpack_record
from dsa_crosscheck.reference.select import select


def installed() -> bool:
    """Whether the package is there, in the version that is known."""
    try:
        find_sources()
    except Unsupported:
        return False
    return True


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(not installed(), reason="needs sglang 0.5.23"),
]

PRESET_NAMES = ("sglang-v4-fp8", "sglang-v4-fp4")
FP8 = PRESETS["sglang-v4-fp8"].conventions


@pytest.mark.parametrize("preset", PRESET_NAMES)
@pytest.mark.parametrize("name", ["captured-text", "gaussian", "outlier", "spread", "address-coded"])
def test_verdict(preset: str, name: str) -> None:
    inputs = build_case(name, context=8192, rows=16, topk=512, geometry=PRESETS[preset].geometry)
    report = crosscheck(inputs, Sglang(PRESETS[preset].conventions), repeat=5)
    assert report.verdict.passed, str(report)


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_more_keys_than_a_plan_holds(preset: str) -> None:
    inputs = build_case("gaussian", context=5 * MOST_RAGGED, rows=4, topk=512, geometry=PRESETS[preset].geometry)
    assert inputs.slots.size > MOST_RAGGED
    report = judge(inputs, Sglang(PRESETS[preset].conventions))
    assert report.verdict.passed, str(report)


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_stored_bytes_beside_the_emulation(preset: str) -> None:
    """Both plans give the same bytes; a code is at most one step from ours; skipped rows write nothing.

    The package contracts multiply-adds and ours does not, so equal bytes are not due.
    """
    c = PRESETS[preset].conventions
    rng = np.random.default_rng(11)
    count = 8192
    rows = torch.from_numpy(rng.standard_normal((count, 128), np.float32))
    weight = torch.from_numpy(1 + rng.standard_normal(128, np.float32) / 8)
    angles = rng.uniform(-np.pi, np.pi, (4 * count, 32))
    table = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(-1, 64).astype(np.float32))
    positions = torch.arange(count) * 4
    slots = torch.from_numpy(rng.permutation(count))
    slots[::97] = -1
    blank = torch.full((count // 64, 64 * c.key.record_bytes(128)), 0x5A, dtype=torch.uint8)
    ours, extend, decode = blank.clone(), blank.cuda(), blank.cuda()
    store_keys(rows, weight, table, positions, slots, ours, codec=c.key, page_size=64, norm_eps=c.norm_eps)
    given = [x.cuda() for x in (rows, weight, table, positions, slots)]
    Sglang(c).store_keys(*given, extend)
    lengths = torch.where(slots < 0, 1, positions + 4).int().cuda()
    arguments = StoreArguments(given[0], given[1], c.norm_eps, given[2], given[4], decode)
    store_launch(arguments, decode_plan(lengths), key_format=c.key.format, page_size=64, decode=True)()
    assert torch.equal(extend, decode)
    layout = key_layout(c.key, Geometry(), c.page_order)
    mine, theirs = (
        unpack_record(read_records(x.cpu().numpy(), layout, np.arange(count)), c.key, 128) for x in (ours, extend)
    )
    half = 1 << (c.key.spec.bits - 1)
    size = [(x.codes & (half - 1)).astype(int) for x in (mine, theirs)]
    order = [np.where(x.codes & half, -n, n) for x, n in zip((mine, theirs), size, strict=True)]
    steps = np.abs(order[0] - order[1])
    print(f"{preset}: {int((steps > 0).sum())} of {steps.size} codes differ, {(ours != extend.cpu()).sum()} bytes")
    assert steps.max() <= 1
    empty = np.setdiff1d(np.arange(count), slots[slots >= 0].numpy())
    assert (read_records(extend.cpu().numpy(), layout, empty) == 0x5A).all()


def test_pooling_in_several_batches() -> None:
    rng = np.random.default_rng(12)
    raw = rng.standard_normal((2 * POOL_TOKENS + 4099, 512), np.float32) * 3
    bias = rng.standard_normal((4, 256), np.float32)
    got = Sglang().pool(torch.from_numpy(raw).cuda(), torch.from_numpy(bias).cuda()).cpu().numpy()
    off = np.abs(got - pool(raw, bias)) / pool_bound(raw, bias, model("ieee-fp32"))
    assert off.max() <= 1.0


def test_bf16_is_refused_with_the_compilers_words() -> None:
    with pytest.raises(Unsupported, match=r"key.format='bf16': its own static assertion.*bf16 store only for flashmla"):
        Sglang(PRESETS["sglang-v4-bf16"].conventions)


def certified(rows: torch.Tensor, lengths: torch.Tensor, k: int) -> SelectionCertificate:
    """SGLang's selection of given scores, held to exact selection up to equal scores."""
    got = Sglang().select(rows.cuda(), lengths.cuda(), k).cpu().numpy()
    scores, counts = rows.numpy(), lengths.numpy()
    want = select(scores, counts, k, FP8)
    due = np.minimum(counts, k)
    assert [np.unique(row[:n]).size for row, n in zip(got, due, strict=True)] == due.tolist()
    assert all((row[n:] == -1).all() for row, n in zip(got, due, strict=True))
    chosen, expected = ([row[:n] for row, n in zip(x, due, strict=True)] for x in (got, want))
    return certify_selection(chosen, expected, scores.astype(np.float64), None, counts, nan="last")


SHAPES = [(24, 8192), (24, 9001), (40, 20001), (1, 5000), (8, 40000), (40, 70001), (4, 262144)]
"""Rows and scores: the two register paths, streaming, one row, clusters of one launch, pooled clusters."""


@pytest.mark.parametrize("k", [512, 1024, 2048])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_random_rows_are_selected_exactly(rows: int, width: int, k: int) -> None:
    rng = np.random.default_rng(width + k)
    scores = torch.from_numpy(rng.standard_normal((rows, width), np.float32))
    lengths = torch.from_numpy(rng.integers(0, width + 1, rows).astype(np.int32))
    lengths[0] = width
    assert certified(scores, lengths, k).verdict.passed


@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_plateaus_are_ties(rows: int, width: int) -> None:
    """A third of the scores are zero, as when no head's product is positive, and the k-th score is one."""
    rng = np.random.default_rng(width)
    scores = -np.abs(rng.standard_normal((rows, width), np.float32))
    scores[:, ::3] = 0.0
    scores[:, :100] = 1.0
    lengths = torch.full((rows,), width, dtype=torch.int32)
    assert certified(torch.from_numpy(scores), lengths, 512).verdict.passed


def crowded(rows: int, width: int) -> SelectionCertificate:
    """More scores in one bin of the first histogram than the kernel has room for."""
    scores = 1 + np.random.default_rng(width).random((rows, width), np.float32) / 512
    return certified(torch.from_numpy(scores), torch.full((rows,), width, dtype=torch.int32), 512)


@pytest.mark.parametrize(("rows", "width"), [(24, 8192), (24, 16001), (40, 20001)])
def test_crowded_bins_are_refined(rows: int, width: int) -> None:
    assert crowded(rows, width).verdict.passed


@pytest.mark.parametrize(("rows", "width"), [(8, 40000), (40, 262144)])
def test_crowded_bins_on_clusters_are_caught(rows: int, width: int) -> None:
    """On clusters of blocks the package keeps the candidates that come first, as its source says."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("where clusters begin is known for compute capability 9.0 alone")
    certificate = crowded(rows, width)
    assert certificate.verdict.failed
    assert certificate.swap_count > 0

"""Candidate ``sglang`` as far as it goes without a GPU: what it needs, refuses, and hands to the kernels."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sglang_stand_in as stand_in
import torch
from candidates import case, judge

from dsa_crosscheck.compare import cli
from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates import sglang, sglang_build, sglang_launch
from dsa_crosscheck.compare.candidates.sglang_plans import (
    MOST_RAGGED,
    decode_plan,
    extend_plan,
    padded_scores,
    pool_plans,
)
from dsa_crosscheck.compare.device.contenders import sglang as contender
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.conventions import flips
from dsa_crosscheck.reference.pool import pool
from dsa_crosscheck.reference.presets import PRESETS

HOPPER = (9, 0)
OPTIONS = ("--case", "gaussian", "--context", "512", "--rows", "6", "--repeat", "0")
SOURCES = {"csrc/readme": "", "include/readme": ""}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of installed packages, before all others."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def compare(capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says on its way to exit code 2."""
    assert cli.main(["compare", "--candidate", "sglang", *OPTIONS]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    said = compare(capsys)
    assert "an installed sglang 0.5.23, and found none: `pip install --no-deps sglang==0.5.23` is" in said
    assert said.count("candidate 'sglang'") == 1
    assert "does not support" not in said


def test_another_version(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.install(site, "0.5.22", SOURCES)
    assert "an installed sglang 0.5.23, whose entry points it knows, and found 0.5.22" in compare(capsys)


def test_a_package_without_sources(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = stand_in.install(site, "0.5.23")
    assert f"found no folders csrc and include in it; looked in {root}" in compare(capsys)


def test_without_a_gpu(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.install(site, "0.5.23", SOURCES)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "candidate 'sglang' needs a CUDA GPU that torch can use, and found none" in compare(capsys)


def gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = HOPPER) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)


def test_another_gpu(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.install(site, "0.5.23", SOURCES)
    gpu(monkeypatch, (8, 0))
    assert "is for GPUs of compute capability 9.0, 10.0, 12.0, and found 8.0" in compare(capsys)


def test_without_nvcc(site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in.install(site, "0.5.23", SOURCES)
    gpu(monkeypatch)
    monkeypatch.setenv("PATH", str(site))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert "candidate 'sglang' builds with nvcc: nvcc was not found" in compare(capsys)


def test_the_sources_are_found_without_an_import(site: Path) -> None:
    root = stand_in.install(site, "0.5.23", SOURCES)
    assert sglang_build.find_sources() == root


@pytest.mark.parametrize("name", ["sglang-v4-fp8", "sglang-v4-fp4"])
def test_only_norm_eps_may_differ(name: str) -> None:
    own = PRESETS[name].conventions
    sglang.check_conventions(own)
    sglang.check_conventions(replace(own, norm_eps=1e-5))
    for path, _, flipped in flips(own):
        if path == "norm_eps" or sglang.PRESET_OF_FORMAT.get(flipped.key.format, name) != name:
            continue
        with pytest.raises(Unsupported, match=rf"^candidate 'sglang' (implements|stores) only {re.escape(path)}="):
            sglang.check_conventions(flipped)


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - set(sglang.PRESET_OF_FORMAT.values())))
def test_other_presets_are_refused(name: str) -> None:
    with pytest.raises(Unsupported, match=r"candidate 'sglang' (implements|stores) only [\w.]+="):
        sglang.check_conventions(PRESETS[name].conventions)


def test_extend_plan() -> None:
    positions = torch.arange(MOST_RAGGED) * 4
    slots = torch.arange(MOST_RAGGED)
    slots[7] = -5
    plan = stand_in.read(extend_plan(positions, slots), stand_in.EXTEND)
    assert plan["seq_len"][[0, 1, MOST_RAGGED - 1]].tolist() == [4, 8, 4 * MOST_RAGGED]
    assert plan["ragged_id"][[1, MOST_RAGGED - 1]].tolist() == [1, 65535]
    assert not plan["buffer_len"].any()
    assert (plan["seq_len"] == 0xFFFFFFFF).nonzero()[0].tolist() == [7]
    with pytest.raises(ValueError, match="`extend_plan` should get at most 65536 rows, got 65537"):
        extend_plan(torch.arange(MOST_RAGGED + 1), torch.arange(MOST_RAGGED + 1))


def test_decode_plan() -> None:
    plan = stand_in.read(decode_plan(torch.tensor([3, 4, 1 << 20], dtype=torch.int32)), stand_in.DECODE)
    assert plan["seq_len"].tolist() == [3, 4, 1 << 20]


@pytest.mark.parametrize("batches", [(64,), (8, 4, 52), (4, 4, 4, 4, 48), (32, 32)])
def test_batches_of_pooling_plans_give_the_pooled_keys(batches: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    raw = rng.standard_normal((64, 512), np.float32)
    bias = rng.standard_normal((4, 256), np.float32)
    state, made = torch.full((2, 4, 512), torch.nan), torch.empty(16, 128)
    start = 0
    for count in batches:
        plans = pool_plans(start, count, torch.device("cpu"))
        rows = torch.from_numpy(np.concatenate(np.split(bias, 2, axis=1)))
        piece = torch.from_numpy(raw[start : start + count])
        stand_in.prefill(state, piece, made[start // 4 : (start + count) // 4], rows, *plans)
        start += count
    np.testing.assert_allclose(made.numpy(), pool(raw, bias), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (3, 8), (2, 0), (0, 12)])
def test_padded_scores(rows: int, width: int) -> None:
    scores = torch.arange(rows * width, dtype=torch.float32).view(rows, width)
    padded, lengths = padded_scores(scores, torch.full((rows,), width, dtype=torch.int32))
    assert padded.shape[0] >= 2
    assert padded.shape[1] % 4 == 0
    assert padded.shape[1] >= max(width, 4)
    assert torch.equal(padded[:rows, :width], scores)
    assert lengths.tolist() == [width] * rows + [0] * (padded.shape[0] - rows)


class OnThisCpu(sglang.Sglang):
    """The candidate with the stand-in kernels, whose tensors lie on the CPU."""

    device = "cpu"


@pytest.fixture
def candidate_of(site: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """``Sglang`` of a preset, as it calls the kernels, with theirs replaced by the stand-in."""
    stand_in.install(site, "0.5.23", SOURCES)
    gpu(monkeypatch)
    monkeypatch.setattr(sglang.build, "nvcc", lambda: Path("nvcc"))
    for module in (sglang, sglang_launch):
        monkeypatch.setattr(module, "load", stand_in.modules)
        monkeypatch.setattr(module, "settle", lambda device: None)
    return lambda preset: OnThisCpu(PRESETS[preset].conventions)


@pytest.mark.parametrize("preset", ["sglang-v4-fp8", "sglang-v4-fp4"])
def test_every_stage_reaches_the_kernels_as_they_read_it(preset: str, candidate_of) -> None:  # type: ignore[no-untyped-def]
    candidate = candidate_of(preset)
    report = judge(build_case("gaussian", context=2048, rows=8, topk=64, geometry=PRESETS[preset].geometry), candidate)
    assert report.verdict.passed, str(report)
    assert {"pool", "key codes", "cache bytes", "selection"} <= {s.stage for s in report.stages}
    assert report.not_offered == ("encode_query", "score")


def test_batches_longer_than_a_plan_and_longer_than_the_state(candidate_of, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sglang, "MOST_RAGGED", 100)
    monkeypatch.setattr(sglang, "POOL_TOKENS", 72)
    assert judge(case(), candidate_of("sglang-v4-fp8")).verdict.passed


@pytest.mark.parametrize(
    ("entry", "stage"),
    [("store", "key scales"), ("pool", "pool"), ("topk", "selection")],
)
def test_a_wrong_kernel_fails_its_stage(entry: str, stage: str, candidate_of, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    wrong = {
        "store": lambda *a: stand_in.forward(a[0].flip(0), *a[1:], record=132),
        "pool": lambda *a: stand_in.prefill(*a[:3], a[3].flip(0), *a[4:]),
        "topk": lambda s, *a: stand_in.transform_paged(-s, *a),
    }
    names = {"store": "forward", "pool": "prefill", "topk": "transform_paged"}

    def load(unit: sglang_build.Unit, capability: tuple[int, int]) -> stand_in.Module:
        module = stand_in.modules(unit, capability)
        return stand_in.Module(module, **{names[entry]: wrong[entry]}) if unit.name == entry else module

    monkeypatch.setattr(sglang, "load", load)
    monkeypatch.setattr(sglang_launch, "load", load)
    report = judge(case(), candidate_of("sglang-v4-fp8"))
    assert report.verdict is Verdict.VIOLATION
    assert report.first_fault == stage


def test_sizes_that_the_kernels_are_not_built_for(candidate_of) -> None:  # type: ignore[no-untyped-def]
    candidate = candidate_of("sglang-v4-fp8")
    scores, lengths = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(Unsupported, match="SGLang selects 1 to 2048 keys, got k=2049"):
        candidate.select(scores, lengths, 2049)
    with pytest.raises(Unsupported, match="built for compress_ratio=4, got 2"):
        candidate.pool(torch.zeros(8, 512), torch.zeros(2, 256))
    index = torch.zeros(1, dtype=torch.int64)
    arguments = [torch.ones(1, 128), torch.ones(128), torch.ones(8, 64), index, index]
    with pytest.raises(Unsupported, match="a power of two of tokens, got page_size=3"):
        candidate.store_keys(*arguments, torch.zeros(2, 3 * 132, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"`store_keys\(slots=...\)` should be in \[-1, 4\), got 9"):
        candidate.store_keys(*arguments[:4], index + 9, torch.zeros(2, 2 * 132, dtype=torch.uint8))


def test_contender_refuses_what_it_does_not_plan_for() -> None:
    assert set(contender.FORMATS) == set(contender.STAGES["store"])
    with pytest.raises(ValueError, match=r"`store\(batch.compress_ratio=...\)` should be 4, got 1"):
        contender.store(SimpleNamespace(compress_ratio=1))
    with pytest.raises(ValueError, match=r"should have a multiple of 4 columns, got 5"):
        contender.select(SimpleNamespace(scores=torch.zeros(2, 5)))


def test_contender_launches(candidate_of) -> None:  # type: ignore[no-untyped-def]
    """Decode rows and a selection, launched twice."""
    rng = np.random.default_rng(5)
    rows = torch.from_numpy(rng.standard_normal((9, 128), np.float32))
    cache = torch.zeros(2, 64 * 68, dtype=torch.uint8)
    lengths = torch.arange(9, dtype=torch.int32)
    batch = SimpleNamespace(
        format="fp4",
        rows=rows,
        norm_weight=torch.ones(128),
        rope_table=torch.ones(16, 64),
        seq_lens=lengths + 4,
        slots=torch.arange(9) * 3,
        cache=cache,
        compress_ratio=4,
        page_size=64,
        norm_eps=1e-6,
    )
    launch = contender.store(batch)
    launch()
    written = cache[0, : 64 * 64].view(64, 64).any(dim=1).nonzero()[:, 0]
    assert written.tolist() == [0, 12, 24], "rows of 4, 8 and 12 tokens end a group"
    scores = torch.from_numpy(rng.standard_normal((9, 12), np.float32))
    selected = torch.empty(9, 4, dtype=torch.int32)
    contender.select(SimpleNamespace(scores=scores, lengths=lengths, selected=selected))()
    assert (selected[:, 0] == torch.tensor([-1, 0, 0, 0, 0, *selected[5:, 0]])).all()
    assert [set(r.tolist()) for r in selected[5:]] == [set(scores[i, :i].topk(4).indices.tolist()) for i in range(5, 9)]


PROBE = """#pragma once
#include <cstdint>
#include <width.cuh>
namespace sglang {
static_assert(SGL_CUDA_ARCH == 900);
inline int64_t get_max_active_clusters(int64_t blocks, int64_t occupancy) { return WIDTH * blocks + occupancy; }
}
"""
STORE = """#pragma once
namespace sglang {
using fp32_t = float;
enum Layout { V4 };
template <typename T, int head, int rope, int page, int preshuffle, bool bf16, Layout layout, bool pdl>
struct FusedNormRopeKernel {
  static_assert(!bf16, "no such store");
  static void forward(int64_t) {}
};
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_building_from_the_package(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host function is run; a changed header is noticed; what the compiler says about bf16 is passed on."""
    monkeypatch.setenv("DSA_CROSSCHECK_CACHE", str(tmp_path / "cache"))
    probe, store = "csrc/occupancy/cluster_probe.cuh", "csrc/deepseek_v4/fused_norm_rope_v2.cuh"
    root = stand_in.install(site, "0.5.23", {probe: PROBE, store: STORE, "include/width.cuh": "#define WIDTH 10\n"})
    load = sglang_build.load
    load.cache_clear()
    try:
        assert load(sglang_build.CLUSTER_PROBE, HOPPER).get_max_active_clusters(8, 2) == 82
        said = sglang_build.refusal_of_bf16(HOPPER)
        assert re.match(r"its own static assertion forbids it, fused_norm_rope_v2.cuh\(\d+\): error: static ass", said)
        assert "no such store" in said
        (root / "include/width.cuh").write_text("#error changed\n")
        load.cache_clear()
        with pytest.raises(
            Unsupported, match=r"(?s)the probe kernel of sglang 0.5.23 does not build: .*#error changed"
        ):
            load(sglang_build.CLUSTER_PROBE, HOPPER)
        with pytest.raises(Unsupported, match=r"should have the source .*c4_v2.cuh, and has not"):
            load(sglang_build.POOL, HOPPER)
    finally:
        load.cache_clear()

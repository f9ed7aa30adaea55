"""Candidate ``deepgemm`` without its package, and how it maps rows: the package is played by plain torch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from candidates import case, judge, right

from dsa_crosscheck.compare import cli, crosscheck
from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates import deepgemm, deepgemm_package
from dsa_crosscheck.compare.candidates.deepgemm import DeepGemm
from dsa_crosscheck.compare.candidates.deepgemm_package import load_package
from dsa_crosscheck.compare.device.batches import ScoreShape, score_batch
from dsa_crosscheck.compare.device.contenders import deepgemm as contender
from dsa_crosscheck.compare.testing.whole import on_gpu
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.presets import PRESETS

PLAYED = '''
"""Float32 logits of one request a line, in the shapes that the real package asserts."""

import torch

calls = []


def get_num_sms():
    return 132


def get_paged_mqa_logits_metadata(context_lens, block_kv, num_sms):
    assert context_lens.dtype == torch.int32 and context_lens.dim() == 2 and context_lens.is_contiguous()
    assert (context_lens > 0).all() and (block_kv, num_sms) == (64, 132)
    return context_lens.clone()


def fp8_paged_mqa_logits(q, kv_cache, weights, context_lens, block_table, plan, max_context_len, clean_logits):
    batch, next_n, heads, dim = q.shape
    assert q.dtype == torch.float8_e4m3fn and (next_n, dim) == (1, 128) and heads in (32, 64)
    assert kv_cache.dtype == torch.uint8 and kv_cache.shape[1:] == (64, 1, 132)
    assert weights.dtype == torch.float32 and weights.shape == (batch * next_n, heads)
    assert block_table.dtype == torch.int32 and block_table.shape[0] == context_lens.shape[0] == batch
    assert torch.equal(plan, context_lens) and clean_logits is False
    calls.append(batch)
    logits = torch.full((batch, -(-max_context_len // 256) * 256), 7.0)
    for i, length in enumerate(context_lens[:, 0].tolist()):
        pages = kv_cache.view(kv_cache.shape[0], -1)[block_table[i, : -(-length // 64)].long()]
        keys = pages[:, :8192].reshape(-1, 128).view(torch.float8_e4m3fn).float()[:length]
        scale = pages[:, 8192:].contiguous().view(torch.float32).reshape(-1)[:length]
        logits[i, :length] = torch.relu(q[i, 0].float() @ keys.T).T @ weights[i] * scale
    return logits[:, :max_context_len]
'''


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package's functions in plain torch on this CPU, and a GPU to be found."""
    (tmp_path / "deep_gemm.py").write_text(PLAYED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(DeepGemm, "device", "cpu")
    yield
    sys.modules.pop("deep_gemm", None)


def arguments(rows: int = 7, heads: int = 64, pages: int = 9) -> list[torch.Tensor]:
    """Three requests of up to three shuffled pages, rows of any of them in no order, one of them empty."""
    generator = torch.Generator().manual_seed(rows)
    codes = torch.randint(0, 0x70, (rows, heads, 128), generator=generator).to(torch.uint8)
    cache = torch.randint(0, 0x70, (pages, 8448), generator=generator).to(torch.uint8)
    cache[:, 8192:] = (torch.rand(pages, 64, generator=generator) + 0.5).view(torch.uint8)
    table = torch.randperm(pages, generator=generator)[:9].view(3, 3).int()
    table[1, 2:], table[2, 1:] = -1, 1 << 30  # past what rows of these requests see
    request = torch.tensor([2, 0, 1, 0, 2, 1, 0])[torch.arange(rows) % 7].int()
    lengths = torch.tensor([33, 192, 128, 65, 0, 1, 100])[torch.arange(rows) % 7].int()
    return [codes, torch.randn(rows, heads, generator=generator), cache, table, request, lengths]


@pytest.mark.parametrize("heads", [32, 64])
def test_rows_of_any_request_in_any_order(played: None, heads: int) -> None:
    inputs = arguments(heads=heads)
    got = DeepGemm(None).score(*inputs)
    want = right().score(*inputs)
    lengths = inputs[-1]
    assert got.shape == (7, 192)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(got[row, :length], want[row, :length], rtol=1e-4, atol=1e-3)
    assert (got[4] == -torch.inf).all(), "a row without keys"
    assert sys.modules["deep_gemm"].calls == [6], "the row without keys must not reach the package"


def test_many_rows_are_several_calls(played: None, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = arguments(rows=14)
    whole = DeepGemm(None).score(*inputs)
    monkeypatch.setattr(deepgemm, "ROWS_A_CALL", 5)
    apart = DeepGemm(None).score(*inputs)
    for row, length in enumerate(inputs[-1].tolist()):
        assert torch.equal(whole[row, :length], apart[row, :length])
    assert sys.modules["deep_gemm"].calls == [12, 5, 5, 2]


def test_no_rows_and_rows_without_keys(played: None) -> None:
    inputs = arguments()
    none = [inputs[0][:0], inputs[1][:0], *inputs[2:4], inputs[4][:0], inputs[5][:0]]
    assert DeepGemm(None).score(*none).shape == (0, 0)
    assert DeepGemm(None).score(*inputs[:5], torch.zeros(7, dtype=torch.int32)).shape == (7, 0)
    assert sys.modules["deep_gemm"].calls == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 16}, "scores 32 or 64 heads, got 16"),
        ({"page": 32}, "reads pages of 64 keys, 8448 bytes, got 4224"),
        ({"width": 64}, "codes of 128 bytes a head, got 64"),
    ],
)
def test_sizes_that_the_package_lacks(played: None, changes: dict[str, int], message: str) -> None:
    inputs = arguments(heads=changes.get("heads", 64))
    inputs[0] = inputs[0][..., : changes.get("width", 128)]
    inputs[2] = inputs[2][:, : changes.get("page", 64) * 132]
    with pytest.raises(Unsupported, match=message):
        DeepGemm(None).score(*inputs)


@pytest.mark.parametrize(
    ("preset", "field"),
    [
        ("sglang-v4-bf16", "key.format='fp8-e4m3fn', got 'bf16'"),
        ("deepseek-v4", "key.format='fp8-e4m3fn', got 'fp4-e2m1'"),
        ("transformers-v4", "key.format='fp8-e4m3fn', got 'exact'"),
    ],
)
def test_other_conventions_are_refused_by_field(played: None, preset: str, field: str) -> None:
    with pytest.raises(Unsupported, match=f"implements only {field}"):
        DeepGemm(PRESETS[preset].conventions)


def test_conventions_with_the_same_scores_are_followed(played: None) -> None:
    for name in ("deepgemm-fp8", "sglang-v4-fp8", "deepseek-v32"):
        assert DeepGemm(PRESETS[name].conventions).conventions == PRESETS[name].conventions
    flipped = PRESETS["deepgemm-fp8"].conventions.with_field("relu", False)
    with pytest.raises(Unsupported, match="relu=True, got False"):
        DeepGemm(flipped)


def test_a_report_says_how_it_stands_under_both_models(played: None) -> None:
    report = judge(case("deepgemm-fp8"), DeepGemm(None))
    assert (report.verdict, report.bound) == (Verdict.WITHIN_BOUND, "tensor-core-fp8")
    assert [line.stage for line in report.stages] == ["scores"]
    assert "select" in report.not_offered
    package, note = report.notes
    assert package == "the candidate calls a module deep_gemm of no known distribution"
    assert note.startswith("the candidate declares tensor-core-fp8; its scores reach 0.0")
    assert "times the bound of ieee-fp32, which the conventions imply" in note


def test_it_reads_only_what_its_rows_see(played: None) -> None:
    report = crosscheck(case("deepgemm-fp8", context=1024, rows=6), DeepGemm(None), repeat=2, explain=False)
    lines = {line.stage: line.verdict for line in report.stages}
    assert lines.keys() == {"scores", "repeat: scores", "poison", "batch invariance"}
    assert report.verdict.passed, str(report)


def missing(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert cli.main(["compare", "--candidate", "deepgemm", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_without_the_package(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepgemm_package, "find_spec", lambda name: None)
    assert "needs the package sgl-deep-gemm (module deep_gemm), not installed here" in missing(capsys)


def test_without_a_gpu(played: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 9))
    assert "needs a GPU of compute capability 9.x or 10.x, got 8.9" in missing(capsys)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "needs a CUDA GPU that torch can use, and found none" in missing(capsys)


CALLED = "candidate 'deepgemm' calls {} as sgl-deep-gemm 0.1.4 has it, and found a module deep_gemm"
NUMBER, PLAN = "get_num_sms()", "get_paged_mqa_logits_metadata(context_lens, block_kv{})"
SCORES = "fp8_paged_mqa_logits(q, kv_cache, weights, context_lens, block_table, {})"
SCORE_CALL = SCORES.format("schedule_meta, max_context_len, clean_logits=")


@pytest.mark.parametrize(
    ("old", "new", "call", "got"),
    [
        ("get_num_sms():", "count():", NUMBER, "no such function"),
        ("def get_num_sms():", "get_num_sms = 132\ndef count():", NUMBER, "no such function"),
        ("block_kv, num_sms):", "block_kv):", PLAN.format(", num_sms"), PLAN.format("")),
        (", clean_logits):", "):", SCORE_CALL, SCORES.format("plan, max_context_len")),
        ("logits):", "logits, lse):", SCORE_CALL, SCORES.format("plan, max_context_len, clean_logits, lse")),
    ],
)
def test_another_deep_gemm_without_the_functions(
    played: None, old: str, new: str, call: str, got: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PLAYED.count(old) == 1
    (tmp_path / "deep_gemm.py").write_text(PLAYED.replace(old, new) + '\n__version__ = "9.1"\n')
    assert f"{CALLED.format(call)} 9.1 of no known distribution, which has {got}\n" in missing(capsys)


def test_what_more_is_called_is_needed_too(played: None) -> None:
    load_package()
    with pytest.raises(Unsupported, match=r"calls get_pdl\(\) as sgl-deep-gemm 0.1.4 has it.*no such function"):
        contender.score(score_batch("fp8", ScoreShape(1, 64), 0, "cpu"))


def test_a_folder_of_that_name(played: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep_gemm.py").rename(tmp_path / "elsewhere.py")
    (tmp_path / "deep_gemm").mkdir()
    assert f"{CALLED.format(NUMBER)} of no known distribution, which has no such function\n" in missing(capsys)


def test_another_deep_gemm_with_the_functions(played: None, tmp_path: Path) -> None:
    more = PLAYED.replace("clean_logits):", "clean_logits=True, indices=None):")
    (tmp_path / "deep_gemm.py").write_text(more.replace("def get_num_sms():", "get_num_sms = max\ndef count():"))
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(max)
    assert DeepGemm(None).package == "a module deep_gemm of no known distribution"


def test_the_distribution_that_provides_it_is_named(
    played: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def distribute(folder: Path, name: str) -> None:
        info = folder / f"{name}-2.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
        (info / "top_level.txt").write_text("deep_gemm\n")

    distribute(tmp_path / "elsewhere", "shadowed")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    assert DeepGemm(None).package == "a module deep_gemm of no known distribution"
    distribute(tmp_path, "other")
    assert DeepGemm(None).package == "other 2.5"
    distribute(tmp_path, "same")
    assert DeepGemm(None).package == "other 2.5 or same 2.5"


def test_it_is_compared_in_a_process_of_its_own() -> None:
    assert on_gpu("deepgemm")

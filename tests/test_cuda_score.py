"""Paged scoring kernels against float64 on random bytes, every code, and bad arguments."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from paged_bytes import BF16, CODECS, FP4, FP8, HEAD_DIM, assert_within, paged_case

from dsa_crosscheck.cuda_impl.ops.score import paged_scores
from dsa_crosscheck.cuda_impl.ops.score_plan import paired
from dsa_crosscheck.reference.codec_spec import Codec

ONE_FP8, MINUS_ONE_FP8 = 0x38, 0xB8


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_scores_match_float64(name: str, page_size: int) -> None:
    case = paged_case(CODECS[name], page_size, lengths=[333, 0, 1, 128, 129, 64, 17], heads=5, seed=page_size)
    assert_within(paged_scores(*case.arguments, codec=CODECS[name], page_size=page_size), case)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("heads", [1, 64, 65, 150])
def test_head_counts_around_the_staged_chunk(name: str, heads: int) -> None:
    case = paged_case(CODECS[name], 64, lengths=[130, 3], heads=heads, seed=heads)
    assert_within(paged_scores(*case.arguments, codec=CODECS[name], page_size=64), case)


def test_rows_may_share_a_request() -> None:
    case = paged_case(FP8, 16, lengths=[40, 200, 7, 100], heads=4, seed=3, requests=[1, 0, 0, 1])
    assert_within(paged_scores(*case.arguments, codec=FP8, page_size=16), case)


@pytest.mark.parametrize("name", CODECS)
def test_runs_are_identical(name: str) -> None:
    case = paged_case(CODECS[name], 64, lengths=[300, 299], heads=64, seed=1)
    first = paged_scores(*case.arguments, codec=CODECS[name], page_size=64)
    again = paged_scores(*case.arguments, codec=CODECS[name], page_size=64)
    assert torch.equal(first.view(torch.int32), again.view(torch.int32))


def test_a_rows_scores_do_not_depend_on_the_other_rows() -> None:
    case = paged_case(FP8, 64, lengths=[300, 150, 20], heads=8, seed=2)
    codes, weights, cache, table, request, lengths = case.arguments
    together = paged_scores(*case.arguments, codec=FP8, page_size=64)
    for row in range(3):
        one = slice(row, row + 1)
        arguments = (codes[one], weights[one], cache, table, request[one], lengths[one])
        alone = paged_scores(*arguments, codec=FP8, page_size=64)
        assert torch.equal(alone[0], together[row, : alone.shape[1]])


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_nothing_to_score(lengths: list[int]) -> None:
    case = paged_case(FP8, 64, lengths=lengths, heads=2, seed=0)
    assert paged_scores(*case.arguments, codec=FP8, page_size=64).shape == (len(lengths), 0)


def _score_one_page(codes: np.ndarray, weights: list[float], page: np.ndarray, tokens: int, codec: Codec) -> np.ndarray:
    """Every row of ``codes`` against the ``tokens`` keys of one page."""
    rows = codes.shape[0]
    scores = paged_scores(
        torch.from_numpy(codes),
        torch.tensor([weights] * rows),
        torch.from_numpy(page[None]),
        torch.zeros(1, 1, dtype=torch.int32),
        torch.zeros(rows, dtype=torch.int32),
        torch.full((rows,), tokens, dtype=torch.int32),
        codec=codec,
        page_size=tokens,
    )
    return scores.numpy()


@pytest.mark.parametrize("element", [0, 3, 17, 127])
def test_every_fp8_code_of_a_key_is_exact(element: int) -> None:
    # relu(x) - relu(-x) = x: two heads of +1 and -1 with weights +1 and -1 read one element back.
    codes = np.zeros((1, 2, HEAD_DIM), np.uint8)
    codes[0, :, element] = [ONE_FP8, MINUS_ONE_FP8]
    keys = np.zeros((256, HEAD_DIM), np.uint8)
    keys[:, element] = np.arange(256)
    page = np.concatenate((keys.reshape(-1), np.ones(256, np.float32).view(np.uint8)))
    got = _score_one_page(codes, [1.0, -1.0], page, 256, FP8)[0]
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(got[[0x7F, 0xFF]]).all()


def test_every_fp8_code_of_a_query_is_exact() -> None:
    codes = np.zeros((256, 1, HEAD_DIM), np.uint8)
    codes[:, 0, 5] = np.arange(256)
    keys = np.zeros((2, HEAD_DIM), np.uint8)
    keys[:, 5] = [ONE_FP8, MINUS_ONE_FP8]
    page = np.concatenate((keys.reshape(-1), np.ones(2, np.float32).view(np.uint8)))
    got = _score_one_page(codes, [1.0], page, 2, FP8)
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(got[:, 0], np.maximum(expected, 0))
    np.testing.assert_array_equal(got[:, 1], np.maximum(-expected, 0))


@pytest.mark.parametrize("group", range(4))
def test_every_fp4_code_under_every_scale_is_exact(group: int) -> None:
    record = HEAD_DIM // 2
    codes = np.zeros((2, 2, record + 4), np.uint8)
    codes[..., record:] = 127
    for row in range(2):  # row 0 reads the even element of a byte, row 1 the odd one
        codes[row, :, 16 * group + 2] = np.array([0x2, 0xA]) << (4 * row)  # +1 and -1
    tokens = 16 * 256
    code = np.arange(tokens, dtype=np.int64) % 16
    keys = np.zeros((tokens, record), np.uint8)
    keys[:, 16 * group + 2] = code | (15 - code) << 4
    scales = np.full((tokens, 4), 127, np.uint8)
    scales[:, group] = np.arange(tokens) // 16
    page = np.concatenate((keys.reshape(-1), scales.reshape(-1)))
    got = _score_one_page(codes, [1.0, -1.0], page, tokens, FP4)
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        power = scales[:, group].copy().view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
        expected = np.stack((table[code] * power, table[15 - code] * power)).astype(np.float32)
    # 6 * 2^126 and 4 * 2^127 are beyond float32; such an element times the query's zeros is NaN, so the
    # two elements of a byte are compared where both are finite.
    finite = np.broadcast_to(np.isfinite(expected).all(axis=0), expected.shape)
    np.testing.assert_array_equal(got[finite], expected[finite])
    assert np.isnan(got[:, scales[:, group] == 255]).all()
    assert finite.mean() > 0.98


def test_bf16_values_are_exact() -> None:
    bits = np.concatenate((np.arange(0, 0x7F80, 61), [0x0001, 0x007F, 0x0080, 0x7F7F, 0x7FC0])).astype(np.uint16)
    bits = np.concatenate((bits, bits | 0x8000))
    codes = np.zeros((1, 2, HEAD_DIM), np.uint16)
    codes[0, :, 7] = [0x3F80, 0xBF80]
    keys = np.zeros((bits.size, HEAD_DIM), np.uint16)
    keys[:, 7] = bits
    got = _score_one_page(codes.view(np.uint8), [1.0, -1.0], keys.view(np.uint8).reshape(-1), bits.size, BF16)[0]
    np.testing.assert_array_equal(got, bits.view(ml_dtypes.bfloat16).astype(np.float32))


def test_negative_dots_are_clamped_before_the_weight() -> None:
    codes = np.full((1, 1, HEAD_DIM), ONE_FP8, np.uint8)
    page = np.concatenate((np.full(HEAD_DIM, MINUS_ONE_FP8, np.uint8), np.ones(1, np.float32).view(np.uint8)))
    assert _score_one_page(codes, [-2.0], page, 1, FP8)[0, 0] == 0.0


BAD_ARGUMENTS = [
    (0, lambda t: t.view(torch.int8), r"paged_scores\(codes=.*torch.uint8.*got torch.int8"),
    (0, lambda t: t[..., :127].contiguous(), r"paged_scores\(codes=.*128.*got torch.uint8 \[2, 3, 127\]"),
    (0, lambda t: t[:, :0].contiguous(), r"paged_scores\(weights="),
    (1, lambda t: t.double(), r"paged_scores\(weights=.*torch.float32.*got torch.float64"),
    (1, lambda t: t.t().contiguous().t(), r"paged_scores\(weights=.*not contiguous"),
    (2, lambda t: t[:, 1:].contiguous(), r"paged_scores\(cache=.*2112.*got torch.uint8 \[\d+, 2111\]"),
    (3, lambda t: t.long(), r"paged_scores\(block_table=.*torch.int32"),
    (3, lambda t: torch.where(t >= 0, t + 1000, t), r"paged_scores\(block_table=.*below a row's length, got 10\d\d "),
    (3, lambda t: torch.full_like(t, -1), r"paged_scores\(block_table=.*got -1 for page 0 of request 0"),
    (4, lambda t: t + 1, r"paged_scores\(request_of_row=.*in \[0, 2\), got 2"),
    (5, lambda t: t - 21, r"paged_scores\(lengths=.*got -1"),
    (5, lambda t: t + 1000, r"paged_scores\(lengths=.*in \[0, 81\)"),
    (5, lambda t: t[:1], r"paged_scores\(lengths=.*rows = 2"),
]


@pytest.mark.parametrize(("index", "change", "message"), BAD_ARGUMENTS)
def test_bad_tensors_are_named(index: int, change: object, message: str) -> None:
    arguments = list(paged_case(FP8, 16, lengths=[33, 20], heads=3, seed=0).arguments)
    arguments[index] = change(arguments[index])  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        paged_scores(*arguments, codec=FP8, page_size=16)


def test_a_misaligned_view_is_refused() -> None:
    arguments = list(paged_case(FP8, 16, lengths=[33], heads=3, seed=0).arguments)
    cache = arguments[2]
    shifted = torch.empty(cache.numel() + 1, dtype=torch.uint8)[1:].view_as(cache)
    arguments[2] = shifted.copy_(cache)
    with pytest.raises(ValueError, match=r"paged_scores\(cache=.*multiple of 4 bytes"):
        paged_scores(*arguments, codec=FP8, page_size=16)


@pytest.mark.parametrize("page_size", [0, -1, 1.5, True])
def test_bad_page_size(page_size: object) -> None:
    arguments = paged_case(FP8, 16, lengths=[3], heads=1, seed=0).arguments
    with pytest.raises(ValueError, match=r"paged_scores\(page_size=.*positive integer"):
        paged_scores(*arguments, codec=FP8, page_size=page_size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "codec", [Codec("exact"), FP8.with_field("scale", "unit"), FP4.with_field("nibbles", "high-even")]
)
def test_a_codec_without_a_kernel_is_refused(codec: Codec) -> None:
    arguments = paged_case(FP8, 16, lengths=[3], heads=1, seed=0).arguments
    with pytest.raises(ValueError, match=r"paged_scores\(codec=.*one of .*got"):
        paged_scores(*arguments, codec=codec, page_size=16)


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("tensor", r"unit=...\)` should be one of \(None, 'wgmma', 'mma', 'fma'\), got 'tensor'"),
        ("wgmma", r"unit=...\)` should be one that the device and the sizes allow, got 'wgmma'"),
        ("mma", r"unit=...\)` should be one that the device and the sizes allow, got 'mma'"),
    ],
)
def test_a_unit_that_is_not_there_is_refused(unit: str, message: str) -> None:
    arguments = paged_case(FP8, 64, lengths=[3], heads=64, seed=0).arguments
    with pytest.raises(ValueError, match=message):
        paged_scores(*arguments, codec=FP8, page_size=64, unit=unit)


def test_an_emulation_scores_in_float32() -> None:
    arguments = paged_case(FP8, 64, lengths=[70], heads=64, seed=0).arguments
    scores = [paged_scores(*arguments, codec=FP8, page_size=64, unit=unit) for unit in (None, "fma")]
    assert torch.equal(*scores)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [([0, 0], True), ([3, 3, 3, 3, 1, 1], True), ([], True), ([0], False), ([0, 0, 1], False), ([0, 1, 1, 0], False)],
)
def test_rows_are_paired_where_both_of_each_pair_have_one_request(requests: list[int], expected: bool) -> None:
    assert paired(torch.tensor(requests, dtype=torch.int32)) is expected

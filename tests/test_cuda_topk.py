"""The top-k kernel against numpy's stable sort, on rows made to break selections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for
from dsa_crosscheck.cuda_impl.ops.topk import topk

NAN = np.float32(np.nan)
MINUS_NAN = np.array([0xFFC00001], np.uint32).view(np.float32)[0]


def expected(scores: np.ndarray, lengths: np.ndarray, k: int) -> np.ndarray:
    """Ranks NaN last, then by falling score, then by index; ascending indices, -1 at the end."""
    out = np.full((len(scores), k), -1, np.int32)
    for row, length in enumerate(lengths):
        with np.errstate(invalid="ignore"):  # signalling NaN
            visible = scores[row, :length].astype(np.float64)
        missing = np.isnan(visible)
        order = np.lexsort((np.arange(length), -np.where(missing, 0.0, visible), missing))
        chosen = np.sort(order[:k])
        out[row, : chosen.size] = chosen
    return out


def check(scores: np.ndarray, lengths: list[int] | np.ndarray, k: int) -> None:
    scores = np.ascontiguousarray(scores, np.float32)
    got = topk(torch.from_numpy(scores), torch.tensor(np.asarray(lengths), dtype=torch.int32), k)
    np.testing.assert_array_equal(got.numpy(), expected(scores, np.asarray(lengths), k))


@pytest.mark.parametrize("k", [1, 7, 512, 1024, 2048])
@pytest.mark.parametrize("columns", [2049, 4096, 8195])
def test_random_rows(k: int, columns: int) -> None:
    rng = np.random.default_rng(k + columns)
    check(rng.standard_normal((3, columns)), rng.integers(0, columns + 1, 3), k)


@pytest.mark.parametrize("k", [1, 5, 512, 2048])
def test_lengths_around_k(k: int) -> None:
    rng = np.random.default_rng(k)
    lengths = [0, 1, k - 1, k, k + 1, k + 2]
    check(rng.standard_normal((len(lengths), k + 2)), lengths, k)


@pytest.mark.parametrize("k", [1, 511, 2048])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -np.inf, np.inf, np.nan])
def test_all_equal(k: int, value: float) -> None:
    check(np.full((2, 5000), value), [5000, 4097], k)


def test_crowded_range_of_many_rows() -> None:
    # Every score shares its sign, exponent and leading mantissa bits with every other.
    rng = np.random.default_rng(5)
    scores = (1.0 + 0.245 * rng.random((33, 16385))).astype(np.float32)
    assert len(np.unique(scores.view(np.uint32) >> 21)) == 1
    check(scores, np.full(33, 16385), 2048)


def test_keys_that_differ_in_their_last_bits_only() -> None:
    rng = np.random.default_rng(6)
    bits = 0x3F800000 + rng.integers(0, 700, (4, 6000))
    check(bits.astype(np.uint32).view(np.float32), [6000, 5999, 5998, 5997], 2048)


@pytest.mark.parametrize("above", [0, 1, 511, 512, 513])
def test_plateau_at_the_boundary(above: int) -> None:
    # ``above`` scores beat a plateau of zeros; k = 512 cuts through it, at its edge, or above it.
    rng = np.random.default_rng(above)
    scores = np.where(rng.random((4, 9000)) < 0.5, 0.0, -rng.random((4, 9000))).astype(np.float32)
    for row in scores:
        row[rng.choice(9000, above, replace=False)] = 1.0 + rng.random(above)
    check(scores, np.full(4, 9000), 512)


def test_both_zeros_are_one_value() -> None:
    rng = np.random.default_rng(8)
    scores = np.where(rng.random((2, 3000)) < 0.5, 0.0, -0.0).astype(np.float32)
    assert 0 < np.signbit(scores).sum() < scores.size
    check(scores, [3000, 2999], 1000)


def test_nan_of_either_sign_is_last() -> None:
    rng = np.random.default_rng(9)
    scores = rng.standard_normal((3, 3000)).astype(np.float32)
    kind = rng.integers(0, 6, scores.shape)
    for value, which in ((NAN, 0), (MINUS_NAN, 1), (np.float32(-np.inf), 2), (np.float32(np.inf), 3)):
        scores[kind == which] = value
    not_nan = int((~np.isnan(scores[0])).sum())
    for k in (100, not_nan - 1, not_nan, not_nan + 1, 2047):
        check(scores, np.full(3, 3000), k)


def test_extreme_magnitudes() -> None:
    info = np.finfo(np.float32)
    sizes = np.array([info.max, info.tiny, info.smallest_subnormal, 0.0])
    special = np.concatenate((sizes, -sizes))
    rng = np.random.default_rng(10)
    check(rng.choice(special, (4, 2500)), np.full(4, 2500), 1300)


def test_short_rows_never_read_their_scores() -> None:
    # Poison everywhere: a row that fits returns its indices whatever the bytes are.
    scores = torch.full((2, 600), torch.nan)
    got = topk(scores, torch.tensor([512, 3], dtype=torch.int32), 512)
    assert got[0].tolist() == list(range(512))
    assert got[1].tolist() == [0, 1, 2] + [-1] * 509


def test_columns_past_the_length_are_never_selected() -> None:
    scores = np.zeros((1, 5000), np.float32)
    scores[0, 3001:] = np.inf
    check(scores, [3001], 2048)


@pytest.mark.parametrize(
    "make",
    [lambda rng: rng.standard_normal((5, 20000)), lambda rng: rng.integers(0, 3, (5, 20000))],
    ids=["distinct", "three-values"],
)
def test_runs_are_identical(make: Callable[[np.random.Generator], np.ndarray]) -> None:
    scores = torch.from_numpy(make(np.random.default_rng(0)).astype(np.float32))
    lengths = torch.full((5,), 20000, dtype=torch.int32)
    assert torch.equal(topk(scores, lengths, 2048), topk(scores, lengths, 2048))


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_rows_of_any_alignment(offset: int) -> None:
    # An odd number of columns and a shifted start: vector loads are legal for some rows only.
    rng = np.random.default_rng(offset)
    flat = torch.from_numpy(rng.standard_normal(offset + 5 * 2051).astype(np.float32))
    scores = flat[offset:].view(5, 2051)
    lengths = np.array([2051, 2050, 2049, 2048, 700])
    got = topk(scores, torch.from_numpy(lengths.astype(np.int32)), 600)
    np.testing.assert_array_equal(got.numpy(), expected(scores.numpy(), lengths, 600))


def test_no_rows_and_no_columns() -> None:
    none = torch.empty(0, dtype=torch.int32)
    assert topk(torch.empty(0, 10), none, 4).shape == (0, 4)
    assert topk(torch.empty(2, 0), torch.zeros(2, dtype=torch.int32), 4).tolist() == [[-1] * 4] * 2


@pytest.mark.parametrize("k", [0, -1, 2049, 1.0, True])
def test_bad_k(k: object) -> None:
    with pytest.raises(ValueError, match=r"topk\(k=.*in \[1, 2048\], got"):
        topk(torch.zeros(1, 10), torch.zeros(1, dtype=torch.int32), k)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, 2049])
def test_exports_check_k_themselves(k: int) -> None:
    kernels = kernels_for(torch.device("cpu"))
    with pytest.raises(ValueError, match=rf"`k` should be in \[1, 2048\], got {k}"):
        kernels.topk_workspace(1, 10, k, 1)
    selected, workspace = torch.zeros(1, k, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=rf"`k` should be in \[1, 2048\], got {k}"):
        kernels.topk(torch.zeros(1, 10), torch.zeros(1, dtype=torch.int32), workspace, selected, 1)


@pytest.mark.parametrize(
    ("scores", "lengths", "message"),
    [
        (torch.zeros(1, 10, dtype=torch.float64), [1], r"topk\(scores=.*torch.float32.*got torch.float64"),
        (torch.zeros(10, 2).t(), [1, 1], r"topk\(scores=.*not contiguous"),
        (torch.zeros(10), [1], r"topk\(scores=.*got torch.float32 \[10\]"),
        (torch.zeros(2, 10), [1], r"topk\(lengths=.*rows = 2"),
        (torch.zeros(2, 10), [1, -1], r"topk\(lengths=.*in \[0, 11\), got -1 at \(1,\)"),
        (torch.zeros(2, 10), [11, 0], r"topk\(lengths=.*in \[0, 11\), got 11 at \(0,\)"),
    ],
)
def test_bad_tensors_are_named(scores: torch.Tensor, lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topk(scores, torch.tensor(lengths, dtype=torch.int32), 4)

"""Pooling kernel and its exp against float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.build import load_emulated
from dsa_crosscheck.cuda_impl.ops.pool import pool

UNIT = 2.0**-24
"""Relative error of one float32 rounding to nearest."""

EXP_ULP = 0.98
EXP_SUBNORMAL_ULP = 0.76
"""Stated in the kernel's header; the slow test goes through every argument."""

EXP_PROBE = """
#include "binding.cuh"
#include "exp.cuh"
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  const float* in = dsa::data<const float>("x", x, dsa::f32, {dsa::any_size});
  float* out = dsa::data<float>("y", y, dsa::f32, {x.size(0)});
  for (int64_t i = 0; i < x.size(0); ++i) out[i] = dsa::exp_nonpositive(in[i]);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""

Exp = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def exp(tmp_path_factory: pytest.TempPathFactory) -> Exp:
    """The kernel's exp, compiled from its own header with the emulated build's flags."""
    source: Path = tmp_path_factory.mktemp("exp") / "exp_probe.cu"
    source.write_text(EXP_PROBE)
    module = load_emulated([source])

    def call(x: np.ndarray) -> np.ndarray:
        y = np.empty_like(x)
        module.run(x, y)
        return y

    return call


def _ulp_errors(exp: Exp, bits: np.ndarray) -> tuple[float, float]:
    """Largest errors in units of the last place of the exact result: normal, subnormal."""
    x = bits.astype(np.uint32).view(np.float32)
    exact = np.exp(x.astype(np.float64))
    unit = np.maximum(np.exp2(np.floor(np.log2(exact)) - 23), 2.0**-149)
    error = np.abs(exp(x).astype(np.float64) - exact) / unit
    normal = exact >= 2.0**-126
    return float(error[normal].max(initial=0.0)), float(error[~normal].max(initial=0.0))


MINUS_TINY, MINUS_104 = 0x80000000 | 0x31000000, 0xC2D00000
"""Bits of -2^-29, above which exp rounds to 1, and of -104, below which it is 0."""


def test_exp_error_over_the_range(exp: Exp) -> None:
    normal, subnormal = _ulp_errors(exp, np.arange(MINUS_TINY, MINUS_104 + 1, 97))
    assert 0.5 < normal < EXP_ULP
    assert subnormal < EXP_SUBNORMAL_ULP


@pytest.mark.slow
def test_exp_error_of_every_argument(exp: Exp) -> None:
    chunk = 1 << 24
    for start in range(MINUS_TINY, MINUS_104 + 1, chunk):
        normal, subnormal = _ulp_errors(exp, np.arange(start, min(start + chunk, MINUS_104 + 1)))
        assert normal < EXP_ULP
        assert subnormal < EXP_SUBNORMAL_ULP


def test_exp_special_arguments(exp: Exp) -> None:
    x = np.array([0.0, -0.0, -(2.0**-149), -(2.0**-30), -np.inf, -3e38, -104.5, np.nan], np.float32)
    np.testing.assert_array_equal(exp(x), np.array([1, 1, 1, 1, 0, 0, 0, np.nan], np.float32))


def pool_float64(kv_score: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pooled keys in float64 and a first-order bound on the kernel's float32 error.

    Roundings of a weight: the biased score, the shift by the largest (absolute errors in the
    exponent), then ``EXP_ULP``. The two sums have one product and seven additions at most, then one
    division. A relative error e_j of weight j moves the mean by share_j * (value_j - mean) * e_j.
    """
    tokens, head_dim = kv_score.shape[0], kv_score.shape[1] // 4
    columns = kv_score.astype(np.float64).reshape(tokens, 4, head_dim)
    halves = bias.astype(np.float64).reshape(4, 2, head_dim)
    out = np.empty((tokens // 4, head_dim))
    bound = np.empty_like(out)
    for group in range(tokens // 4):
        own = columns[4 * group : 4 * group + 4]
        values, logits = own[:, 1], own[:, 3] + halves[:, 1]
        if group:
            before = columns[4 * group - 4 : 4 * group]
            values = np.concatenate((before[:, 0], values))
            logits = np.concatenate((before[:, 2] + halves[:, 0], logits))
        shift = logits - logits.max(axis=0)
        share = np.exp(shift) / np.exp(shift).sum(axis=0)
        out[group] = (share * values).sum(axis=0)
        weight_error = UNIT * (np.abs(logits) + np.abs(logits).max(axis=0) + np.abs(shift) + 2 * EXP_ULP)
        moved = (share * np.abs(values - out[group]) * weight_error).sum(axis=0)
        sums = UNIT * (8 * (share * np.abs(values)).sum(axis=0) + 8 * np.abs(out[group]))
        bound[group] = 1.01 * (moved + sums)
    return out, bound


def _case(seed: int, tokens: int, head_dim: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kv_score = rng.standard_normal((tokens, 4 * head_dim)).astype(np.float32)
    kv_score[:, 2 * head_dim :] *= np.float32(spread)
    return kv_score, rng.standard_normal((4, 2 * head_dim)).astype(np.float32)


def _pool(kv_score: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return pool(torch.from_numpy(kv_score), torch.from_numpy(bias)).numpy()


@pytest.mark.parametrize("tokens", [4, 5, 8, 67, 256])
@pytest.mark.parametrize("spread", [0.01, 1.0, 40.0])
def test_pool_matches_float64(tokens: int, spread: float) -> None:
    kv_score, bias = _case(tokens, tokens, 128, spread)
    exact, bound = pool_float64(kv_score, bias)
    got = _pool(kv_score, bias)
    assert got.shape == (tokens // 4, 128)
    error = np.abs(got - exact)
    assert (error <= bound).all(), f"worst {np.max(error / bound)} of the bound"


@pytest.mark.parametrize("head_dim", [1, 96, 512])
def test_other_widths(head_dim: int) -> None:
    kv_score, bias = _case(head_dim, 24, head_dim, 1.0)
    exact, bound = pool_float64(kv_score, bias)
    assert (np.abs(_pool(kv_score, bias) - exact) <= bound).all()


def test_first_group_ignores_the_overlap_columns() -> None:
    kv_score, bias = _case(1, 4, 128, 1.0)
    before = _pool(kv_score, bias)
    kv_score[:, :128] = np.nan
    kv_score[:, 256:384] = np.nan
    bias[:, :128] = np.nan
    np.testing.assert_array_equal(_pool(kv_score, bias), before)


def test_large_scores_do_not_overflow() -> None:
    kv_score, bias = _case(2, 16, 128, 1e30)
    exact, _ = pool_float64(kv_score, bias)
    # One score dwarfs the rest by far more than exp's range: the value passes unchanged.
    np.testing.assert_array_equal(_pool(kv_score, bias), exact.astype(np.float32))


def test_minus_infinity_drops_a_slot_and_nan_spreads_in_its_channel_only() -> None:
    kv_score, bias = _case(3, 8, 128, 1.0)
    kv_score[5, 3 * 128 + 7] = -np.inf
    exact, bound = pool_float64(np.where(np.isinf(kv_score), np.float32(-1e4), kv_score), bias)
    got = _pool(kv_score, bias)
    others = np.arange(128) != 7
    assert (np.abs(got - exact) <= bound)[:, others].all()
    assert abs(got[1, 7] - exact[1, 7]) <= bound[0, 7] + bound[1, 7]
    for value, column in ((np.nan, 9), (np.inf, 10)):
        kv_score[6, 3 * 128 + column] = value
    wrong = np.isnan(_pool(kv_score, bias))
    assert np.argwhere(wrong).tolist() == [[1, 9], [1, 10]]


@pytest.mark.parametrize("tokens", [0, 3])
def test_too_few_tokens_make_no_key(tokens: int) -> None:
    assert _pool(*_case(0, tokens, 128, 1.0)).shape == (0, 128)


@pytest.mark.parametrize(
    ("kv_score", "bias", "message"),
    [
        (torch.zeros(8, 512), torch.zeros(3, 256), r"pool\(position_bias=.*\[4, .*got torch.float32 \[3, 256\]"),
        (torch.zeros(8, 512), torch.zeros(4, 255), r"pool\(position_bias=.*2 \* head_dim columns"),
        (torch.zeros(8, 511), torch.zeros(4, 256), r"pool\(kv_score=.*512.*got torch.float32 \[8, 511\]"),
        (torch.zeros(8, 512).half(), torch.zeros(4, 256), r"pool\(kv_score=.*torch.float32.*got torch.float16"),
        (torch.zeros(512, 8).t(), torch.zeros(4, 256), r"pool\(kv_score=.*not contiguous"),
        ([[0.0]], torch.zeros(4, 256), r"pool\(kv_score=.*got list"),
    ],
)
def test_bad_arguments_are_named(kv_score: torch.Tensor, bias: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pool(kv_score, bias)

"""Exact scores: the mathematics of a convention with every rounding taken out."""

from __future__ import annotations

import numpy as np
import pytest
import small_cases

from dsa_crosscheck.reference.conventions import flips, paths
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.trace import Trace, exact_scores

INPUTS = small_cases.mixed()
# What is left when nothing is rounded, stored or selected.
MATHEMATICS = {
    "norm",
    "norm_eps",
    "rope_pairing",
    "rope_dims",
    "rope_position",
    "hadamard_key",
    "hadamard_query",
    "hadamard_scale",
    "lane_order_key",
    "lane_order_query",
    "weight_scale",
    "relu",
    "causal",
}


@pytest.mark.parametrize("name", PRESETS)
def test_only_mathematics_changes_exact_scores(name: str) -> None:
    base = exact_scores(INPUTS, PRESETS[name].conventions).values
    changing = set()
    for path, _, flipped in flips(PRESETS[name].conventions):
        got = exact_scores(INPUTS, flipped).values
        if got.shape != base.shape or not np.allclose(got, base, rtol=1e-9, atol=1e-9):
            changing.add(path)
        else:
            assert path not in MATHEMATICS
    assert changing == MATHEMATICS & set(paths(PRESETS[name].conventions))


def test_noise_grows_with_narrower_formats() -> None:
    """Error of all scores relative to all exact scores, from formats of 24, 8, 4 and 2 significant bits."""
    names = ("transformers-v4", "sglang-v4-bf16", "sglang-v4-fp8", "sglang-v4-fp4")
    noise = []
    for name in names:
        conventions = PRESETS[name].conventions
        exact, stored = exact_scores(INPUTS, conventions).values, Trace(INPUTS, conventions).scores.values
        live = np.isfinite(exact)
        np.testing.assert_array_equal(live, np.isfinite(stored))
        noise.append(float(np.linalg.norm(stored[live] - exact[live]) / np.linalg.norm(exact[live])))
    for bits, error in zip((24, 8, 4, 2), noise, strict=True):
        assert 2.0 ** (-bits - 4) < error < 2.0 ** (1 - bits)

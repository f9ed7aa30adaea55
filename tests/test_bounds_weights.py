"""The bound of stage ``encode_query`` on head weights: 1,000 admissible ways stay inside, one outside does not.

Each implementation is a row of the inputs: they hold the same query and gate in every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import admissible as arithmetic
import numpy as np
import pytest
import small_cases

from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.query import judge_query
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import quantise

COUNT = 1000
Array = np.ndarray
VARIANTS: dict[str, Conventions] = {
    "folded float32 scale": PRESETS["sglang-v4-fp8"].conventions,
    "folded power of two": PRESETS["deepseek-v32"].conventions,
    "scale beside the codes": PRESETS["sglang-v4-fp4"].conventions,
    "bf16 weight": PRESETS["deepseek-v4"].conventions,
    "gate alone": replace(PRESETS["sglang-v4-fp8"].conventions, weight_scale="none"),
}


def setup(c: Conventions) -> Setup:
    """The first row of a small case in every row, with gates whose weights are next to a bf16 boundary."""
    mixed = small_cases.mixed()
    rows = {
        name: np.repeat(getattr(mixed, name)[:1], COUNT, axis=0)
        for name in ("query", "query_positions", "request_of_row")
    }
    many = np.random.default_rng(41).standard_normal(20_000).astype(np.float32)
    factor = (mixed.geometry.head_dim * mixed.geometry.heads) ** -0.5
    gate = many[np.argsort(arithmetic.to_boundary(many * factor))[: mixed.geometry.heads]]
    return Setup(replace(mixed, **rows, gate=np.tile(gate, (COUNT, 1))), c, model("ieee-fp32"))


def weights(s: Setup) -> Array:
    """Float32 weights [rows, heads]: of each row in one of the orders that the model admits."""
    rng = np.random.default_rng(42)
    c, gate, g = s.conventions, s.inputs.gate, s.inputs.geometry
    dim, head = np.float32(g.head_dim**-0.5), np.float32(g.heads**-0.5)
    # An approximate root of the head count that is one ulp off.
    near = np.float32(np.nextafter(head, np.float32(2)))
    ways = (
        gate * (dim * head),
        gate * dim * head,
        gate * near * dim,
        gate * np.float32((g.head_dim * g.heads) ** -0.5),
    )
    out = np.choose(rng.integers(0, len(ways), (COUNT, 1)), ways) if c.weight_scale != "none" else gate
    if c.weight_dtype == "bf16":
        out = arithmetic.to_bf16(out)
    if c.query_scale_in != "weights":
        return out
    moved = s.trace.query.rotated + s.query_bound.rotated * rng.uniform(-1, 1, s.inputs.query.shape)
    return out * quantise(moved, c.query).scales[..., 0]


def judged(s: Setup, got: Array) -> StageResult:
    return next(r for r in judge_query((s.trace.codes, got), s) if r.stage == "head weights")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_thousand_admissible_weights_stay_within_the_bound(variant: str) -> None:
    s = setup(VARIANTS[variant])
    result = judged(s, weights(s))
    assert result.verdict.passed
    assert result.factor is not None
    assert 0.05 < result.factor <= 1.0, result.factor


OUTSIDE: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "bf16": ("folded float32 scale", arithmetic.to_bf16),
    "four parts in a million": ("folded power of two", lambda w: w * np.float32(1 + 2.0**-18)),
    "cut to 16 bits": ("scale beside the codes", lambda w: _cut(w, 8)),
    "bf16 two steps away": ("bf16 weight", lambda w: w * np.float32(1 + 2.0**-6)),
}


def _cut(x: Array, bits: int) -> Array:
    return (x.view(np.uint32) & ~np.uint32((1 << bits) - 1)).view(np.float32)


@pytest.mark.parametrize("what", OUTSIDE)
def test_weights_just_outside_exceed_the_bound(what: str) -> None:
    variant, fault = OUTSIDE[what]
    s = setup(VARIANTS[variant])
    result = judged(s, fault(weights(s)).astype(np.float32))
    assert result.verdict.failed
    assert result.factor is not None
    assert result.factor > 1.0

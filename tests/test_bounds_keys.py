"""``key_bound`` and ``query_bound``: 1,000 admissible implementations stay inside every stage, one outside does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import admissible as arithmetic
import numpy as np
import pytest

from dsa_crosscheck.reference.bounds import key_bound, query_bound
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import BF16_POINTS, Conventions
from dsa_crosscheck.reference.hadamard import hadamard_matrix, row_order
from dsa_crosscheck.reference.keys import rotate_keys
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.query import rotate_query

COUNT = 1000
DIM, ROPE_DIM, POSITIONS = 128, 64, 6
Array = np.ndarray
Rounding = Callable[[Array], Array]

_EXACT = Codec("exact")
PLAIN = Conventions(key=_EXACT, query=_EXACT, query_scale_in=None)
VARIANTS = {
    "rms": PLAIN,
    "layer, half-split": replace(PLAIN, norm="layer", rope_pairing="half-split", rope_dims="first"),
    "rms, bf16 points": replace(PLAIN, bf16_points=frozenset(BF16_POINTS)),
    "layer, bf16 points, strided": replace(
        PLAIN, norm="layer", bf16_points=frozenset(BF16_POINTS), lane_order_key="strided", lane_order_query="strided"
    ),
    "rms, sequency, not scaled": replace(PLAIN, hadamard_order="sequency", hadamard_scale="none"),
    "layer, no Hadamard": replace(
        PLAIN, norm="layer", hadamard_key=False, hadamard_query=False, hadamard_order=None, hadamard_scale=None
    ),
}


def key_inputs() -> tuple[Array, Array, Array, Array]:
    """Pooled keys [4, dim] (plain, outliers, nearly constant, nearly zero), weight, bias and rope table."""
    rng = np.random.default_rng(21)
    pooled = rng.standard_normal((4, DIM))
    pooled[1, :3] *= 200
    pooled[2] = 30 + 1e-3 * pooled[2]
    pooled[3] *= 1e-5
    angles = rng.uniform(0, 2 * np.pi, (POSITIONS, ROPE_DIM // 2))
    table = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(POSITIONS, ROPE_DIM)
    arrays = pooled, rng.standard_normal(DIM), rng.standard_normal(DIM), table
    return tuple(a.astype(np.float32) for a in arrays)  # type: ignore[return-value]


PLACES = np.array([0, 5, 2, 3])
KEY_STAGES = ("unrounded_normed", "unrounded_roped", "unrounded_rotated")
QUERY_STAGES = KEY_STAGES[1:]


def near_boundaries(run: Callable[[Array, Array], object], stages: tuple[str, ...], each: int) -> Array:
    """For each stage and place ``each`` bf16 vectors, of many, with a value closest to a rounding boundary there."""
    many = arithmetic.to_bf16(np.random.default_rng(22).standard_normal((2000, DIM)))
    sets = many.reshape(-1, PLACES.size, DIM)
    found = [getattr(run(many, np.tile(PLACES, len(sets))), stage).reshape(sets.shape) for stage in stages]
    nearest = [arithmetic.to_boundary(x).min(axis=-1).argsort(axis=0)[:each] for x in found]
    return np.concatenate([sets[i, np.arange(PLACES.size)] for i in nearest]).reshape(-1, DIM)


class Implementations:
    """``count`` float32 implementations of the key path; ``faults`` replace an admissible step."""

    def __init__(self, c: Conventions, count: int, seed: int, *, tree: bool = False, **faults: Rounding) -> None:
        self.c, self.count, self.rng = c, count, np.random.default_rng(seed)
        self.dots = arithmetic.BALANCED if tree else arithmetic.ANY
        adds = (arithmetic.balanced_tree,)
        self.adds = adds if tree else (*adds, arithmetic.chain, arithmetic.random_tree)
        self.faults = faults

    def _fault(self, step: str, x: Array) -> Array:
        return self.faults.get(step, lambda same: same)(x)

    def _ways(self, x: Array, ways: tuple, *others: Array) -> Array:
        """Axis 1 of ``x`` [count, n, ...] reduced, a part of the implementations by each way."""
        out = np.empty((self.count, *x.shape[2:]), np.float32)
        for way, part in arithmetic.parts(self.count, len(ways)):
            out[part] = ways[way](x[part], *(o[part] for o in others), self.rng)
        return out

    def _coin(self, rank: int) -> Array:
        return self.rng.random((self.count, *(1,) * (rank - 1))) < 0.5

    def _point(self, name: str, x: Array) -> Array:
        return arithmetic.to_bf16(x) if name in self.c.bf16_points else x

    def norm(self, pooled: Array, weight: Array, bias: Array) -> Array:
        """[count, dim, keys] of pooled [keys, dim]."""
        x = np.broadcast_to(self._point("pooled", pooled).T, (self.count, *pooled.T.shape))
        n = np.float32(DIM)
        if self.c.norm == "layer":
            x = x - (self._ways(x, self.adds) / n)[:, None]
        squares = self._fault("squares", x)
        mean_square = self._ways(squares, self.dots, squares) / n + np.float32(self.c.norm_eps)
        # An approximate inverse root: 3 u by its own error and the last by rounding to float32.
        error = 1 + 3 * arithmetic.UNIT * self.rng.choice([-1, 0, 1], mean_square.shape)
        scale = self._fault("root", (error / np.sqrt(mean_square.astype(np.float64))).astype(np.float32))[:, None]
        weight, bias = weight[:, None], bias[:, None]
        early = self._coin(3)
        out = np.where(early, x * scale * weight, x * (scale * weight))
        if self.c.norm == "layer":
            contracted = arithmetic.fused(x * scale, np.broadcast_to(weight, x.shape), np.broadcast_to(bias, x.shape))
            out = np.where(early, contracted, out + bias)
        return self._point("normed", out)

    def rope(self, x: Array, rows: Array, point: str) -> Array:
        """Turn x [count, dim, keys] by ``rows`` [keys, rope_dim]."""
        cos, sin = self._fault("table", rows[:, 0::2].T), self._fault("table", rows[:, 1::2].T)
        out, half = x.copy(), ROPE_DIM // 2
        turned = out[:, :ROPE_DIM] if self.c.rope_dims == "first" else out[:, -ROPE_DIM:]
        interleaved = self.c.rope_pairing == "interleaved"
        first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
        a, b = turned[:, first].copy(), turned[:, second].copy()
        cos, sin = np.broadcast_to(cos, a.shape), np.broadcast_to(sin, a.shape)
        turned[:, first] = self._two_products(a, cos, -b, sin)
        turned[:, second] = self._two_products(a, sin, b, cos)
        return self._point(point, out)

    def _two_products(self, a: Array, b: Array, c: Array, d: Array) -> Array:
        way = self.rng.integers(0, 3, (self.count, 1, 1))
        return np.select(
            [way == 0, way == 1], [a * b + c * d, arithmetic.fused(a, b, c * d)], arithmetic.fused(c, d, a * b)
        )

    def hadamard(self, x: Array, on: bool, lanes: str, point: str) -> Array:
        """Every output a signed sum of its own, in any order or tree; the factor first or last."""
        if on:
            assert self.c.hadamard_order is not None
            factor = np.float32(DIM**-0.5 if self.c.hadamard_scale == "orthonormal" else 1.0)
            signs = hadamard_matrix(DIM)[row_order(DIM, self.c.hadamard_order)].astype(np.float32)
            early = self._coin(3)
            scaled = np.where(early, x * factor, x)
            out = np.empty(x.shape, np.float32)
            for way, part in arithmetic.parts(self.count, len(self.adds)):
                # A few outputs at a time: all at once would take half a gigabyte.
                for first in range(0, DIM, 16):
                    terms = self._fault(
                        "butterfly", scaled[part][:, :, None] * signs.T[None, :, first : first + 16, None]
                    )
                    out[part, first : first + 16] = self.adds[way](terms, self.rng)
            x = np.where(early, out, out * factor)
        return self._point(point, x[:, lane_permutation(lanes, DIM)])


def worst_of_stages(got: tuple[Array, ...], want: tuple[Array, ...], bounds: tuple[Array, ...]) -> list[float]:
    """Worst error / bound a stage; got [count, dim, keys], want and bounds [keys, dim]."""
    return [
        arithmetic.worst(np.moveaxis(g, 1, 2).astype(np.float64) - w, b)
        for g, w, b in zip(got, want, bounds, strict=True)
    ]


def run_keys(c: Conventions, name: str, count: int, seed: int, **faults: Rounding) -> list[float]:
    """Worst error / bound of the normed, roped and rotated keys."""
    pooled, weight, bias, table = key_inputs()
    if c.bf16_points:
        pooled = near_boundaries(lambda x, at: rotate_keys(x, weight, bias, table, at, c), KEY_STAGES, 1)
    row, places = model(name), np.tile(PLACES, len(pooled) // PLACES.size)
    keys = rotate_keys(pooled, weight, bias, table, places, c)
    bound = key_bound(keys, weight, table, places, c, row)
    do = Implementations(c, count, seed, tree=row.tree, **faults)
    normed = do.norm(pooled, weight, bias)
    roped = do.rope(normed, table[places], "key-roped")
    rotated = do.hadamard(roped, c.hadamard_key, c.lane_order_key, "key-rotated")
    stages = keys.normed, keys.roped, keys.rotated
    return worst_of_stages((normed, roped, rotated), stages, (bound.normed, bound.roped, bound.rotated))


def run_query(c: Conventions, name: str, count: int, seed: int, **faults: Rounding) -> list[float]:
    """Worst error / bound of roped and rotated queries of one head."""
    query, _, _, table = key_inputs()
    if c.bf16_points:
        query = near_boundaries(lambda x, at: rotate_query(x[:, None], table, at, c), QUERY_STAGES, 8)
    row, places = model(name), np.tile(PLACES, len(query) // PLACES.size)
    stages = rotate_query(query[:, None], table, places, c)
    bound = query_bound(query[:, None], stages, table, places, c, row)
    do = Implementations(c, count, seed, tree=row.tree, **faults)
    roped = do.rope(np.broadcast_to(query.T, (count, *query.T.shape)), table[places], "query-roped")
    rotated = do.hadamard(roped, c.hadamard_query, c.lane_order_query, "query-rotated")
    want = stages.roped[:, 0], stages.rotated[:, 0]
    return worst_of_stages((roped, rotated), want, (bound.roped[:, 0], bound.rotated[:, 0]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_thousand_admissible_key_paths_stay_within_the_bounds(variant: str) -> None:
    ratios = run_keys(VARIANTS[variant], "ieee-fp32", COUNT, 1)
    assert max(ratios) <= 1.0, ratios
    assert min(ratios) > 1e-3, ratios


@pytest.mark.parametrize("variant", ["rms", "rms, bf16 points"])
def test_a_thousand_admissible_query_paths_stay_within_the_bounds(variant: str) -> None:
    ratios = run_query(VARIANTS[variant], "ieee-fp32", COUNT, 2)
    assert max(ratios) <= 1.0, ratios
    assert min(ratios) > 1e-3, ratios


@pytest.mark.parametrize("variant", ["rms", "layer, half-split"])
def test_balanced_trees_stay_within_their_narrower_bounds(variant: str) -> None:
    ratios = run_keys(VARIANTS[variant], "fp32-tree", COUNT, 3)
    assert max(ratios) <= 1.0, ratios
    assert max(run_query(VARIANTS[variant], "fp32-tree", 100, 4)) <= 1.0


def _twelve_bits(x: Array) -> Array:
    """A fast inverse root with no Newton step: twelve bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)


OUTSIDE: dict[str, tuple[str, int, str, Rounding]] = {
    "bf16 squares": ("rms", 0, "squares", arithmetic.to_bf16),
    "bf16 squares, layer": ("layer, half-split", 0, "squares", arithmetic.to_bf16),
    "twelve-bit inverse root": ("rms", 0, "root", _twelve_bits),
    "twelve-bit inverse root, layer": ("layer, half-split", 0, "root", _twelve_bits),
    "bf16 table": ("rms", 1, "table", arithmetic.to_bf16),
    "fp16 butterflies": ("rms", 2, "butterfly", arithmetic.to_fp16),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_a_key_path_just_outside_exceeds_the_bound_of_its_stage(what: str) -> None:
    variant, stage, step, rounding = OUTSIDE[what]
    ratios = run_keys(VARIANTS[variant], "ieee-fp32", 20, 5, **{step: rounding})
    assert ratios[stage] > 1.0, ratios
    assert all(ratio <= 1.0 for ratio in ratios[:stage]), ratios


@pytest.mark.parametrize(
    ("stage", "step", "rounding"), [(0, "table", arithmetic.to_bf16), (1, "butterfly", arithmetic.to_fp16)]
)
def test_a_query_path_just_outside_exceeds_the_bound_of_its_stage(stage: int, step: str, rounding: Rounding) -> None:
    ratios = run_query(PLAIN, "ieee-fp32", 20, 6, **{step: rounding})
    assert ratios[stage] > 1.0, ratios


def test_a_bf16_point_left_out_exceeds_the_bound() -> None:
    c = VARIANTS["rms, bf16 points"]
    pooled, weight, bias, table = key_inputs()
    keys = rotate_keys(pooled, weight, bias, table, PLACES, c)
    bound = key_bound(keys, weight, table, PLACES, c, model("ieee-fp32"))
    assert arithmetic.worst(keys.unrounded_rotated - keys.rotated, bound.rotated) > 1.0

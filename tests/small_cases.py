"""Small inputs, each made so that certain conventions show in it.

Every case has four heads, several requests on permuted pages of four keys, and query positions on
and off group ends. ``head_dim`` 32 makes one fp4 group a head.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.hadamard import hadamard
from dsa_crosscheck.reference.inputs import Inputs

KEYS = (9, 4, 0)
"""Keys of each request: three pages, one full page, none."""
GEOMETRY = Geometry(heads=4, page_size=4, topk=3)
BLOCK_TABLE = np.array([[3, 0, 4], [1, -1, -1], [-1, -1, -1]], np.int32)
QUERY = np.array([[0, 35], [0, 20], [0, 2], [1, 15], [1, 13], [2, 0]])
"""Request and raw position of each query row: 9, 5, 0, 4, 3 and 0 finished groups."""


def mixed() -> Inputs:
    """Random values of ordinary size, with a stretch of raw projections."""
    rng = np.random.default_rng(11)
    return build(_normal(rng, sum(KEYS), 128), _normal(rng, len(QUERY), 4, 128), rng, stretch=True)


def plateau() -> Inputs:
    """All keys equal, so that every score of a row is one tie; a raw position has no effect."""
    rng = np.random.default_rng(12)
    pooled = np.tile(_normal(rng, 1, 128), (sum(KEYS), 1))
    return build(pooled, np.abs(_normal(rng, len(QUERY), 4, 128)), rng, turned=False)


def floors() -> Inputs:
    """Zero and nearly zero keys and queries: every group is under some amax floor."""
    rng = np.random.default_rng(13)
    sizes = 10.0 ** np.linspace(-14, -3, sum(KEYS))
    pooled, query = _normal(rng, sum(KEYS), 128), _normal(rng, len(QUERY), 4, 128) * 1e-6
    pooled[::3] = 0
    query[::2] = 0
    inputs = build(pooled * sizes[:, None], query, rng)
    return _with_norm(inputs, inputs.norm_weight * 1e-6, np.zeros(128))


def boundaries() -> Inputs:
    """Rotated values on the midpoints between fp8 codes, in units of a scale that is no power of two.

    The rotation is undone by hand (it is its own inverse), so the rotated values land within a few
    float32 ulp of the midpoints: there the quotient by a scale and the product with its reciprocal
    fall on different sides.
    """
    rng = np.random.default_rng(14)
    codes = np.arange(126)
    exponent, mantissa = codes // 8, codes % 8
    lower = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    step = 2.0 ** (np.maximum(exponent, 1) - 10.0)
    midpoints = np.concatenate([lower + step / 2, [0.0, 448.0]])

    def unrotated(*shape: int) -> np.ndarray:
        units = rng.uniform(1e-3, 2e-3, (*shape, 1))
        return hadamard(midpoints * units, order="natural", scale="orthonormal").astype(np.float32)

    inputs = build(unrotated(sum(KEYS)), unrotated(len(QUERY), 4), rng, turned=False)
    return _with_norm(inputs, np.ones(128), np.zeros(128))


def short_heads() -> Inputs:
    """head_dim 32: an fp4 head has one scale, which may then be folded into its weight."""
    rng = np.random.default_rng(15)
    geometry = Geometry(heads=4, head_dim=32, rope_dim=16, page_size=4, topk=3)
    return build(_normal(rng, sum(KEYS), 32), _normal(rng, len(QUERY), 4, 32), rng, geometry=geometry)


ALL = {make.__name__: make for make in (mixed, plateau, floors, boundaries, short_heads)}


def build(
    pooled: np.ndarray,
    query: np.ndarray,
    rng: np.random.Generator,
    *,
    geometry: Geometry = GEOMETRY,
    turned: bool = True,
    stretch: bool = False,
) -> Inputs:
    """Inputs around given keys and queries; without ``turned`` the RoPE table is the identity everywhere."""
    dim, ratio = geometry.head_dim, geometry.compress_ratio
    index = np.concatenate([np.arange(n) for n in KEYS])
    request = np.repeat(np.arange(len(KEYS)), KEYS).astype(np.int32)
    slots = BLOCK_TABLE[request, index // geometry.page_size].astype(np.int64) * geometry.page_size
    angles = np.outer(np.arange(40.0) if turned else np.zeros(40), 0.7 ** np.arange(geometry.rope_dim // 2))
    return Inputs(
        geometry=geometry,
        pages=6,
        pooled=pooled.astype(np.float32),
        norm_weight=_normal(rng, dim),
        norm_bias=_normal(rng, dim),
        rope_table=np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(40, -1).astype(np.float32),
        key_index=index,
        key_request=request,
        slots=slots + index % geometry.page_size,
        query=query.astype(np.float32),
        gate=_normal(rng, *query.shape[:2]),
        query_positions=QUERY[:, 1].copy(),
        block_table=BLOCK_TABLE,
        request_of_row=QUERY[:, 0].astype(np.int32),
        key_counts=np.array(KEYS),
        kv_score=_normal(rng, 11, 4 * dim) if stretch else None,
        position_bias=_normal(rng, ratio, 2 * dim) if stretch else None,
    )


def _with_norm(inputs: Inputs, weight: np.ndarray, bias: np.ndarray) -> Inputs:
    return replace(inputs, norm_weight=weight.astype(np.float32), norm_bias=bias.astype(np.float32))


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)

"""Many float32 implementations at once: axis 0 counts them, axis 1 is the one that a sum runs over.

Everything a bound must hold for is drawn at random for each of them: the order of a sum, the tree it
is added along, whether products are rounded or fused, and what a matrix unit's instruction takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

Array = np.ndarray
Add = Callable[[Array, np.random.Generator], Array]
UNIT = 2.0**-24


def to_bf16(x: Array) -> Array:
    return x.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def to_boundary(x: Array) -> Array:
    """Distance of ``x`` to the next value midway between two bf16 numbers, in float32 ulp."""
    return np.abs((x.astype(np.float32).view(np.uint32) & 0xFFFF).astype(np.int64) - 0x8000)


def to_fp16(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float16).astype(np.float32)


def fused(a: Array, b: Array, c: Array) -> Array:
    """fl32(a b + c) of float32 numbers, rounded once.

    The product is exact in float64; the sum is rounded to odd there, which keeps enough of it for the
    rounding to float32 to be that of the exact value (Boldo and Melquiond, 2008).
    """
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    other = total - product
    error = (product - (total - other)) + (addend - other)
    even = total.view(np.int64) & 1 == 0
    odd = np.where((error != 0) & even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)


def shuffled(rng: np.random.Generator, *operands: Array) -> list[Array]:
    """``operands`` [count, n, ...] with axis 1 in an order of its own for each implementation, one for all."""
    count, n = operands[0].shape[:2]
    order = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
    return [x[np.arange(count)[:, None], order] for x in operands]


def chain(terms: Array, rng: np.random.Generator) -> Array:
    """One after another, in random order."""
    (terms,) = shuffled(rng, terms)
    running = terms[:, 0]
    for i in range(1, terms.shape[1]):
        running = running + terms[:, i]
    return running


def random_tree(terms: Array, rng: np.random.Generator) -> Array:
    """Any two partial sums at a time."""
    x, who = terms.copy(), np.arange(terms.shape[0])
    for left in range(terms.shape[1], 1, -1):
        i = rng.integers(0, left, who.size)
        j = (i + rng.integers(1, left, who.size)) % left
        x[who, i] += x[who, j]
        x[who, j] = x[:, left - 1]
    return x[:, 0]


def balanced_tree(terms: Array, rng: np.random.Generator) -> Array:
    """Neighbours of a random order, then neighbours of those sums, and so on."""
    (x,) = shuffled(rng, terms)
    while x.shape[1] > 1:
        pairs = x.shape[1] // 2
        x = np.concatenate([x[:, 0 : 2 * pairs : 2] + x[:, 1 : 2 * pairs : 2], x[:, 2 * pairs :]], axis=1)
    return x[:, 0]


def rounded_products(add: Add) -> Callable[[Array, Array, np.random.Generator], Array]:
    """A dot product that rounds its products and adds them by ``add``."""
    return lambda a, b, rng: add(a * b, rng)


def fused_chain(a: Array, b: Array, rng: np.random.Generator) -> Array:
    """Fused multiply-adds, one after another in random order."""
    a, b = shuffled(rng, *np.broadcast_arrays(a, b))
    running = a[:, 0] * b[:, 0]
    for i in range(1, a.shape[1]):
        running = fused(a[:, i], b[:, i], running)
    return running


def fused_leaves(add: Add) -> Callable[[Array, Array, np.random.Generator], Array]:
    """A dot product whose first level fuses two products, the rest added by ``add``; an even number of terms."""

    def dot(a: Array, b: Array, rng: np.random.Generator) -> Array:
        a, b = shuffled(rng, *np.broadcast_arrays(a, b))
        if a.shape[1] == 1:
            return (a * b)[:, 0]
        return add(fused(a[:, 0::2], b[:, 0::2], a[:, 1::2] * b[:, 1::2]), rng)

    return dot


ANY = (
    rounded_products(chain),
    rounded_products(random_tree),
    rounded_products(balanced_tree),
    fused_chain,
    fused_leaves(random_tree),
)
BALANCED = (rounded_products(balanced_tree), fused_leaves(balanced_tree))


def matrix_unit(
    a: Array,
    b: Array,
    rng: np.random.Generator,
    *,
    bits: int,
    cut: Callable[[Array], Array] = np.trunc,
    shuffle: bool = True,
    width: int = 32,
    result_bits: int | None = None,
) -> Array:
    """Exact products, ``width`` an instruction, cut with the running sum to ``bits`` bits of the largest of them.

    ``result_bits``: what each instruction's sum is cut to.
    """
    products = a.astype(np.float64) * b
    if shuffle:
        (products,) = shuffled(rng, products)
    running = np.zeros((products.shape[0], *products.shape[2:]))
    for start in range(0, products.shape[1], width):
        running = cut_sum(np.concatenate([products[:, start : start + width], running[:, None]], axis=1), bits, cut)
        running = running if result_bits is None else cut_sum(running[:, None], result_bits, cut)
    return cut_sum(running[:, None], bits, cut).astype(np.float32)


def cut_sum(addends: Array, bits: int, cut: Callable[[Array], Array]) -> Array:
    """Addends aligned to the largest exponent, cut there, and added exactly."""
    _, exponent = np.frexp(np.abs(addends).max(axis=1, keepdims=True))
    step = np.ldexp(1.0, exponent - bits)
    return (cut(addends / step) * step).sum(axis=1)


def parts(count: int, ways: int) -> Iterator[tuple[int, slice]]:
    """``count`` implementations divided among ``ways`` of computing."""
    edges = np.linspace(0, count, ways + 1).astype(int)
    yield from ((way, slice(edges[way], edges[way + 1])) for way in range(ways))


def worst(error: Array, bound: Array) -> float:
    """Largest error / bound; an error where the bound is 0 counts as infinite."""
    error = np.abs(error)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(error == 0, 0.0, error / bound).max())

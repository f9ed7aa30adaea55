"""Float32 sums in every admissible way: random order, random tree, with fused multiply-add or without."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


class RandomSums:
    """Sums and dot products over the last axis in float32, in an order drawn from ``generator``."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def total(self, terms: Array) -> Array:
        """Sum of float32 ``terms`` [..., n] as a chain or along a random tree; zeros where n is 0."""
        terms = terms[..., self._generator.permutation(terms.shape[-1])]
        if terms.shape[-1] == 0 or self.coin():
            return self._chain(terms)
        while (n := terms.shape[-1]) > 1:
            pairs = int(self._generator.integers(max(1, n // 8), n // 2 + 1))
            added = terms[..., :pairs] + terms[..., pairs : 2 * pairs]
            terms = np.concatenate([added, terms[..., 2 * pairs :]], axis=-1)
        return terms[..., 0]

    @staticmethod
    def _chain(terms: Array) -> Array:
        running = np.zeros(terms.shape[:-1], np.float32)
        for i in range(terms.shape[-1]):
            running = running + terms[..., i]
        return running

    def dot(self, left: Array, right: Array) -> Array:
        """Products of float32 ``left`` and ``right`` [..., n] summed: rounded, or fused into a few running sums."""
        if self._generator.random() < 0.5:
            return self.total(left * right)
        order = self._generator.permutation(np.broadcast_shapes(left.shape, right.shape)[-1])
        lanes = int(2 ** self._generator.integers(0, 5))
        sums = []
        for lane in np.array_split(order, lanes):
            running = np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-1], np.float32)
            for i in lane:
                running = fused(left[..., i], right[..., i], running)
            sums.append(running)
        return self.total(np.stack(sums, axis=-1))

    def product_sum(self, a: Array, b: Array, c: Array, d: Array) -> Array:
        """a b + c d in float32, either product fused or neither."""
        choice = int(self._generator.integers(3))
        if choice == 0:
            return a * b + c * d
        return fused(a, b, c * d) if choice == 1 else fused(c, d, a * b)

    def coin(self) -> bool:
        """One of two admissible ways."""
        return bool(self._generator.random() < 0.5)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a b + c rounded once: the product of two float32 numbers is exact in float64."""
    return (a.astype(np.float64) * b + c).astype(np.float32)

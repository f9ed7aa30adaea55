"""One case with its stored vectors in a given order: bytes, scores and selections of both implementations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import fsum

import numpy as np

from dsa_crosscheck.compare.candidates.registry import load
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stages.scores import score_call
from dsa_crosscheck.reference.cache import write_records
from dsa_crosscheck.reference.quantise import Quantised, dequantise, quantise
from dsa_crosscheck.reference.query import encode_query, query_values
from dsa_crosscheck.reference.record import pack_record
from dsa_crosscheck.reference.score import Scores
from dsa_crosscheck.reference.select import select


@dataclass(frozen=True)
class StoredOrder:
    """``setup``'s rotated keys and queries stored in ``key_order`` and ``query_order`` (place -> element).

    The setup's own conventions store in the natural order. Everything is computed when first asked for.
    """

    setup: Setup
    key_order: np.ndarray
    query_order: np.ndarray

    @cached_property
    def keys(self) -> Quantised:
        """Codes and scales of every key, quantised in stored order."""
        return quantise(self.setup.trace.keys.rotated[..., self.key_order], self.setup.conventions.key)

    @cached_property
    def query(self) -> Quantised:
        """Codes and scales of every query head, quantised in stored order."""
        return quantise(self._rotated_query, self.setup.conventions.query)

    @property
    def _rotated_query(self) -> np.ndarray:
        return self.setup.trace.query.rotated[..., self.query_order]

    @cached_property
    def scorer_input(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cache bytes, query codes and float32 head weights."""
        s = self.setup
        cache = np.zeros((s.inputs.pages, s.layout.page_bytes), np.uint8)
        write_records(cache, s.layout, pack_record(self.keys, s.conventions.key), s.inputs.slots)
        codes, weights = encode_query(self._rotated_query, s.inputs.gate, s.conventions)
        return cache, codes, weights.astype(np.float32)

    @cached_property
    def judged(self) -> tuple[Scores, np.ndarray]:
        """Float64 scores of these bytes and the bound on a kernel's error."""
        return self.setup.judge(*self.scorer_input)

    @cached_property
    def kernel_scores(self) -> np.ndarray:
        """Float32 scores by the emulated kernels."""
        return score_call(load("emulated", self.setup.conventions), self.setup, *self.scorer_input)

    def selection(self, scores: np.ndarray) -> np.ndarray:
        """The exact selection of ``scores``, int32 [rows, topk]."""
        return select(scores, self.setup.trace.lengths, self.setup.inputs.geometry.topk, self.setup.conventions)

    def dots(self, rows: int, heads: int, keys: int) -> np.ndarray:
        """Correctly rounded q . k of the first rows, heads and keys: no order of summation enters.

        Every product of two stored values is exact in float64, and ``fsum`` rounds their sum once.
        """
        c, dim = self.setup.conventions, self.setup.inputs.geometry.head_dim
        stored_keys = dequantise(self.keys, c.key)[:keys]
        query = query_values(self.scorer_input[1], c, dim)[:rows, :heads]
        products = query[:, :, None] * stored_keys
        sums = [fsum(one) for one in products.reshape(-1, dim).tolist()]
        return np.array(sums).reshape(products.shape[:-1])

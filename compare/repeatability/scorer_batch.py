"""The arguments of ``score``, and the same rows arranged as another batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.call import call, expect
from dsa_crosscheck.compare.setup import Setup


@dataclass(frozen=True)
class ScorerBatch:
    """Arguments of ``score`` in its order, with the protocol's shapes and dtypes.

    ``cache`` may be a torch view into a larger buffer; the candidate then gets that view.
    """

    codes: np.ndarray
    weights: np.ndarray
    cache: np.ndarray | torch.Tensor
    block_table: np.ndarray
    request_of_row: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(setup: Setup) -> ScorerBatch:
        """What both scorers receive in the stage ``score``."""
        cache, codes, weights = setup.scorer_input
        inputs = setup.inputs
        return ScorerBatch(codes, weights, cache, inputs.block_table, inputs.request_of_row, setup.trace.lengths)

    def rows(self, index: np.ndarray) -> ScorerBatch:
        """Only the rows ``index``, in that order."""
        return replace(
            self,
            codes=self.codes[index],
            weights=self.weights[index],
            request_of_row=self.request_of_row[index],
            lengths=self.lengths[index],
        )

    def requests(self, order: np.ndarray) -> ScorerBatch:
        """The same rows and pages with request ``order[i]`` called ``i``."""
        name = np.empty_like(order)
        name[order] = np.arange(order.size)
        return replace(
            self,
            block_table=np.ascontiguousarray(self.block_table[order]),
            request_of_row=name[self.request_of_row].astype(np.int32),
        )

    def scores(self, candidate: Any) -> np.ndarray:
        """The candidate's float32 [rows, max_length]; ``CandidateFault`` as ``call`` and ``expect``."""
        arguments = (self.codes, self.weights, self.cache, self.block_table, self.request_of_row, self.lengths)
        (got,) = call(candidate, "score", *arguments)
        return expect("score", "scores", got, (self.lengths.size, int(self.lengths.max(initial=0))), (np.float32,))

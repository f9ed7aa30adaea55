"""What every stage comparison shares: the inputs, the reference's trace, and the bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dsa_crosscheck.compare.freedom import stored_freedom
from dsa_crosscheck.reference.bounds import RotatedBound, key_bound, query_bound
from dsa_crosscheck.reference.cache import key_layout
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.key_source import CachedKeys
from dsa_crosscheck.reference.keys import key_positions
from dsa_crosscheck.reference.layout import PageLayout
from dsa_crosscheck.reference.models import BF16_UNIT, AccumulatorModel
from dsa_crosscheck.reference.quantise import quantise
from dsa_crosscheck.reference.query import query_values
from dsa_crosscheck.reference.score import Scores
from dsa_crosscheck.reference.score_bound import KeySizes, score_bound
from dsa_crosscheck.reference.trace import Trace, exact_scores, score_cache

NORM_BLOCK = 8192


@dataclass(frozen=True)
class Setup:
    """One comparison: ``inputs`` under ``conventions``, judged by ``model``.

    ``fed``: the setup whose trace both sides were given as input of the scorer and the selector,
    None for this one's own. It lets the same outputs be judged again under other conventions.
    """

    inputs: Inputs
    conventions: Conventions
    model: AccumulatorModel
    fed: Setup | None = None

    def under(self, conventions: Conventions) -> Setup:
        """The same inputs, bytes and scores, judged under other conventions."""
        return Setup(self.inputs, conventions, self.model, self.fed or self)

    @cached_property
    def trace(self) -> Trace:
        """The reference's own run, a stage at a time."""
        return Trace(self.inputs, self.conventions)

    @property
    def layout(self) -> PageLayout:
        """Layout of the index-key cache."""
        return key_layout(self.conventions.key, self.inputs.geometry, self.conventions.page_order)

    @cached_property
    def positions(self) -> np.ndarray:
        """Raw RoPE position of every key, int64."""
        return key_positions(self.inputs.key_index, self.inputs.geometry, self.conventions.rope_position)

    @cached_property
    def norm_weight(self) -> np.ndarray:
        """Norm parameters as a candidate receives them: with the bias only under LayerNorm."""
        if self.conventions.norm == "rms":
            return self.inputs.norm_weight
        return np.stack([self.inputs.norm_weight, self.inputs.norm_bias])

    @cached_property
    def key_bound(self) -> RotatedBound:
        """Bounds along the key path."""
        weight, table = self.inputs.norm_weight, self.inputs.rope_table
        return key_bound(self.trace.keys, weight, table, self.positions, self.conventions, self.model)

    @cached_property
    def query_bound(self) -> RotatedBound:
        """Bounds along the query path."""
        i = self.inputs
        return query_bound(i.query, self.trace.query, i.rope_table, i.query_positions, self.conventions, self.model)

    @cached_property
    def exact_scores(self) -> Scores:
        """Scores of the inputs with no rounding anywhere."""
        return exact_scores(self.inputs, self.conventions)

    @property
    def scorer_input(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cache bytes, query codes and float32 head weights that both scorers receive."""
        source = (self.fed or self).trace
        return source.cache, source.codes, source.weights.astype(np.float32)

    @property
    def selector_input(self) -> tuple[np.ndarray, np.ndarray]:
        """Float32 scores and row lengths that both selectors receive."""
        source = (self.fed or self).trace
        return source.scores.values.astype(np.float32), source.lengths

    @cached_property
    def shared_scores(self) -> tuple[Scores, np.ndarray]:
        """Unrounded float64 scores of the scorers' input, and their bound."""
        return self.judge(*self.scorer_input)

    def judge(self, cache: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> tuple[Scores, np.ndarray]:
        """Float64 scores of anyone's bytes, and the bound on an admissible kernel's error for them."""
        weights = weights.astype(np.float64)
        scores = score_cache(self.inputs, cache, codes, weights, replace(self.conventions, score_rounding="none"))
        query = query_values(codes, self.conventions, self.inputs.geometry.head_dim)
        return scores, score_bound(scores, query, weights, self._key_sizes(cache, scores.values.shape[1]), self.model)

    @cached_property
    def unseen_scores(self) -> tuple[Scores, np.ndarray]:
        """Float64 scores of the reference's own bytes, bounded for a kernel whose codes nobody saw.

        With F_k and F_q the norms of what stored keys and queries may differ by (``freedom``), a
        head's product moves by at most |q| F_k + F_q (|k| + F_k). What moves is rounded like the rest,
        so it grows by the model's relative errors, twice for their second order. Weights may be off by
        gamma_6, and by a whole step where they are rounded to bfloat16.
        """
        i, c, trace = self.inputs, self.conventions, self.trace
        scores, bound = self.judge(trace.cache, trace.codes, trace.weights)
        width = scores.values.shape[1]
        key_move = np.zeros((i.key_counts.size, width))
        inside = (i.slots >= 0) & (i.key_index < width)
        moved = stored_freedom(trace.keys.rotated, self.key_bound.rotated, trace.stored, c.key)
        key_move[i.key_request[inside], i.key_index[inside]] = np.linalg.norm(moved[inside], axis=-1)
        key_move = key_move[i.request_of_row]
        stored = quantise(trace.query.rotated, c.query)
        query_move = np.linalg.norm(
            stored_freedom(trace.query.rotated, self.query_bound.rotated, stored, c.query), axis=-1
        )
        if c.query_scale_in == "weights":
            query_move = query_move / stored.scales[..., 0]
        size = np.abs(trace.weights)
        reach = (size * np.linalg.norm(query_values(trace.codes, c, i.geometry.head_dim), axis=-1)).sum(axis=-1)
        norms = self._key_sizes(trace.cache, width).norms
        moves = reach[:, None] * key_move + (size * query_move).sum(axis=-1)[:, None] * (norms + key_move)
        weight = self.model.gamma(6) + (2 * BF16_UNIT if c.weight_dtype == "bf16" else 0.0)
        m, dot = self.model, self.model.dot_error(i.geometry.head_dim)
        rounded = dot.norms + dot.peaks + dot.value + m.gamma(m.roundings(i.geometry.heads) + 3)
        rounded += m.product_unit + m.weighted_unit + m.score_unit
        total = (bound + moves * (1 + 2 * rounded)) * (1 + weight) + weight * scores.magnitude
        return scores, np.where(np.isfinite(scores.values), total, 0.0)

    def _key_sizes(self, cache: np.ndarray, width: int) -> KeySizes:
        """Sizes of the keys that each row's request shows, [rows, width]; 0 past its longest row."""
        i = self.inputs
        keys = CachedKeys(cache, self.layout, self.conventions.key, i.block_table, i.geometry.head_dim)
        norms, peaks = np.zeros((2, i.key_counts.size, width))
        for request in np.unique(i.request_of_row):
            seen = int(self.trace.lengths[i.request_of_row == request].max(initial=0))
            for start in range(0, seen, NORM_BLOCK):
                stop = min(start + NORM_BLOCK, seen)
                block = keys.block(int(request), start, stop)
                norms[request, start:stop] = np.sqrt((block * block).sum(axis=-1))
                peaks[request, start:stop] = np.abs(block).max(axis=-1)
        return KeySizes(norms[i.request_of_row], peaks[i.request_of_row])

"""What a golden fixture holds, computed from its inputs and conventions."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dsa_crosscheck.compare.census import TieCensus, tie_census
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.fixtures.golden.golden import INPUT
from dsa_crosscheck.fixtures.golden.logical import CODE_DTYPES, check_storage
from dsa_crosscheck.fixtures.netcdf import Attributes, StoredArray
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.models import MODEL_OF_ROUNDING, MODELS, model
from dsa_crosscheck.reference.select import ranked, select

POISON = 0xFF
"""NaN as bf16, float32 and fp8-e4m3fn, and as any scale; the most negative code of the others."""

_INPUT_DIMS = {"4*head_dim": "kv_score_columns", "2*head_dim": "position_bias_columns"}
_HEADS = ("rows", "heads", "head_dim")
_KEYS = ("keys", "head_dim")


@dataclass(frozen=True)
class Contents:
    """The arrays of one fixture; ``Golden`` says what each is."""

    inputs: Inputs
    conventions: Conventions

    @cached_property
    def setup(self) -> Setup:
        """The reference's run, judged by the model that the conventions imply."""
        return Setup(self.inputs, self.conventions, model(MODEL_OF_ROUNDING[self.conventions.score_rounding]))

    @property
    def attributes(self) -> Attributes:
        """Names along the two axes that need them, and the number of pages."""
        return {
            "pages": self.inputs.pages,
            "bound_models": json.dumps(list(MODELS)),
            "census_counts": json.dumps([count.name for count in fields(TieCensus)]),
        }

    def arrays(self) -> dict[str, StoredArray]:
        """Every array by name."""
        arrays = {**self._inputs(), **self._keys(), **self._query(), **self._scores(), **self._selection()}
        for name, array in arrays.items():
            check_storage(name, array)
        return arrays

    def _inputs(self) -> dict[str, StoredArray]:
        found = {}
        for spec in fields(Inputs):
            values = getattr(self.inputs, spec.name)
            if spec.metadata and values is not None:
                dims = tuple(_INPUT_DIMS.get(dim, dim) for dim in spec.metadata["shape"])
                found[INPUT + spec.name] = _stored(values, *dims)
        return found

    def _keys(self) -> dict[str, StoredArray]:
        trace, codec = self.setup.trace, self.conventions.key
        found = {}
        if trace.pooled_stretch is not None:
            found["pooled_stretch"] = _stored(trace.pooled_stretch, "groups", "head_dim")
        stages = ("normed", "roped", "rotated")
        for stage in ("pooled", *stages) if "pooled" in self.conventions.bf16_points else stages:
            found |= _stage("key", stage, trace.keys, _KEYS)
        found["key.codes"] = StoredArray(_KEYS, *_code_bits(trace.stored.codes, codec))
        if codec.scale_bytes:
            found["key.scales"] = StoredArray(("keys", "scale_groups"), *_scale_bits(trace.stored.scales, codec))
        found["key.records"] = _stored(trace.records, "keys", "record_bytes")
        found["cache"] = _stored(trace.cache, "pages", "page_bytes")
        found["poisoned_cache"] = _stored(self._poisoned_cache(), "pages", "page_bytes")
        return found

    def _poisoned_cache(self) -> np.ndarray:
        layout = self.setup.layout
        slots = self.inputs.slots[self.inputs.slots >= 0]
        page, offset = np.divmod(slots, layout.page_size)
        held = np.zeros(self.setup.trace.cache.shape, bool)
        held[page[:, None], layout.addresses[offset]] = True
        return np.where(held, self.setup.trace.cache, np.uint8(POISON))

    def _query(self) -> dict[str, StoredArray]:
        trace = self.setup.trace
        found: dict[str, StoredArray] = {}
        for stage in ("roped", "rotated"):
            found |= _stage("query", stage, trace.query, _HEADS)
        found["query.codes"] = _stored(trace.codes, "rows", "heads", "query_bytes")
        found["query.weights"] = _stored(trace.weights, "rows", "heads")
        found["scorer.weights"] = _stored(self.setup.scorer_input[2], "rows", "heads")
        return found

    @cached_property
    def bounds(self) -> np.ndarray:
        """Bounds of the shared scores by every model, float64 [models, rows, columns]."""
        cache, codes, weights = self.setup.scorer_input
        return np.stack(
            [Setup(self.inputs, self.conventions, m).judge(cache, codes, weights)[1] for m in MODELS.values()]
        )

    def _scores(self) -> dict[str, StoredArray]:
        return {
            "lengths": _stored(self.setup.trace.lengths, "rows"),
            "scores": _stored(self.setup.shared_scores[0].values, "rows", "columns"),
            "bounds": _stored(self.bounds, "models", "rows", "columns"),
            "trace.scores": _stored(self.setup.trace.scores.values, "rows", "columns"),
        }

    def _selection(self) -> dict[str, StoredArray]:
        trace, topk = self.setup.trace, self.inputs.geometry.topk
        scores, lengths = self.setup.selector_input
        given = np.full((scores.shape[0], scores.shape[1] + 1), np.nan, np.float32)
        inside = np.arange(given.shape[1])[None, :] < lengths[:, None]
        given[inside] = scores[inside[:, :-1]]
        census = tie_census(self.setup)
        counts = np.stack([getattr(census, count.name) for count in fields(TieCensus)])
        return {
            "selection": _stored(trace.selection, "rows", "topk"),
            "margin": _stored(margins(trace.scores.values, lengths, topk, self.conventions.topk_nan), "rows"),
            "selector.scores": _stored(given, "rows", "selector_columns"),
            "selector.selection": _stored(select(given, lengths, topk, self.conventions), "rows", "topk"),
            "tie_census": _stored(counts, "census_counts", "rows"),
        }


def margins(scores: np.ndarray, lengths: np.ndarray, topk: int, nan: str) -> np.ndarray:
    """The ``topk``-th largest score of each row minus the next, float64 [rows]; inf where no key is left out."""
    found = np.full(lengths.size, np.inf)
    for row in np.flatnonzero(lengths > topk):
        order = np.sort(ranked(scores[row, : lengths[row]], nan))
        found[row] = order[-topk] - order[-topk - 1]
    return found


def _stage(operand: str, stage: str, stages: object, dims: tuple[str, ...]) -> dict[str, StoredArray]:
    """One stage, and what it was before its bfloat16 point where that changed it."""
    values = getattr(stages, stage)
    found = {f"{operand}.{stage}": _stored(values, *dims)}
    raw = getattr(stages, f"unrounded_{stage}", values)
    if raw is not values:
        found[f"{operand}.unrounded_{stage}"] = _stored(raw, *dims)
    return found


def _code_bits(codes: np.ndarray, codec: Codec) -> tuple[np.ndarray, str]:
    name = CODE_DTYPES[codec.format]
    return (codes.view(np.float32) if name == "float32" else codes), name


def _scale_bits(scales: np.ndarray, codec: Codec) -> tuple[np.ndarray, str]:
    if codec.scale_bytes == 4:
        return scales, "float32"
    return (np.ascontiguousarray(scales).view(np.uint32) >> np.uint32(23)).astype(np.uint8), "float8_e8m0fnu"


def _stored(values: np.ndarray, *dims: str) -> StoredArray:
    return StoredArray(dims, np.ascontiguousarray(values), str(values.dtype))

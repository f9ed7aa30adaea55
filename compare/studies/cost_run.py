"""One timed pass of a candidate over one problem: store, encode, score, select, each on its own output."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.registry import CandidateError, load
from dsa_crosscheck.compare.studies.formats import FORMATS
from dsa_crosscheck.cuda_impl.unfused.cache import page_layout
from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.keys import key_positions
from dsa_crosscheck.reference.presets import PRESETS

STAGES = ("store_keys", "encode_query", "score", "select")


def serving_conventions(format_name: str) -> Conventions:
    """The fused serving path with keys and queries in format ``format_name``."""
    codec = FORMATS[format_name]
    where = None
    if codec.scale_bytes:
        where = "weights" if codec.groups(128) == 1 else "record"
    return replace(PRESETS["sglang-v4-fp8"].conventions, key=codec, query=codec, query_scale_in=where)


@dataclass(frozen=True)
class Pass:
    """Seconds of every stage, in the order of ``STAGES``, and the keys that were selected, int [rows, topk]."""

    seconds: tuple[float, ...]
    selection: np.ndarray


class Contender:
    """A candidate with its tensors in place, ready to be timed again and again.

    Raises ``CandidateError`` or ``Unsupported`` when the candidate can't be had, or not for this format.
    """

    def __init__(self, name: str, format_name: str, inputs: Inputs) -> None:
        conventions = serving_conventions(format_name)
        self._candidate = load(name, conventions)
        missing = [stage for stage in STAGES if not callable(getattr(self._candidate, stage, None))]
        if missing:
            raise Unsupported(f"candidate {name!r} should have every stage to be timed, got no {missing}")
        self._device = torch.device(getattr(self._candidate, "device", "cpu"))
        self._topk = inputs.geometry.topk
        positions = key_positions(inputs.key_index, inputs.geometry, conventions.rope_position)
        layout = page_layout(conventions.key, inputs.geometry, conventions.page_order)
        self._cache = torch.zeros(inputs.pages, layout.page_bytes, dtype=torch.uint8, device=self._device)
        self._store = [
            self._tensor(array)
            for array in (inputs.pooled, inputs.norm_weight, inputs.rope_table, positions, inputs.slots)
        ]
        self._query = [
            self._tensor(array) for array in (inputs.query, inputs.gate, inputs.rope_table, inputs.query_positions)
        ]
        self._lengths = self._tensor(row_lengths(inputs, conventions.causal))
        self._pages = [self._tensor(array) for array in (inputs.block_table, inputs.request_of_row)]

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def time(self) -> Pass:
        """Run every stage once."""
        c, seconds = self._candidate, []

        def timed(stage: str, *arguments: Any) -> Any:
            begun = self._now()
            out = getattr(c, stage)(*arguments)
            seconds.append(self._now() - begun)
            return out

        timed("store_keys", *self._store, self._cache)
        codes, weights = timed("encode_query", *self._query)
        scores = timed("score", codes, weights, self._cache, *self._pages, self._lengths)
        chosen = timed("select", scores, self._lengths, self._topk)
        return Pass(tuple(seconds), chosen.cpu().numpy())

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def contender(name: str, format_name: str, inputs: Inputs) -> Contender | None:
    """``name`` for ``format_name``; None when it exists and doesn't do this format.

    ``CandidateError`` when there is no such candidate, or it fails for another reason.
    """
    try:
        return Contender(name, format_name, inputs)
    except CandidateError as error:
        if isinstance(error.__cause__, Unsupported):
            return None
        raise

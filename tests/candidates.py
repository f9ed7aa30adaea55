"""Candidates for tests: a right one, and the same with some methods replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare import crosscheck
from dsa_crosscheck.compare.candidates.unfused import Unfused
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS

torch.set_num_threads(1)  # tests run side by side

FP8 = "sglang-v4-fp8"

judge = partial(crosscheck, repeat=0, explain=False)
"""The comparison itself: no repetition, and no search for the reasons of a failure."""


def right(preset: str = FP8) -> Unfused:
    """The torch path under a preset's conventions."""
    return Unfused(PRESETS[preset].conventions)


def flipped(candidate: Unfused, path: str, value: object) -> Unfused:
    """The torch path under the same conventions but for one field."""
    return Unfused(candidate.conventions.with_field(path, value))


class Altered:
    """``base`` with methods replaced by ``changes``, each called as ``change(base, *arguments)``.

    A change of None takes the method away.
    """

    name = "altered"

    def __init__(self, base: Unfused, **changes: Callable[..., Any] | None) -> None:
        self.conventions = base.conventions
        self._base = base
        self._changes = changes

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or (method in self._changes and self._changes[method] is None):
            raise AttributeError(method)
        change = self._changes.get(method)
        return partial(change, self._base) if change else getattr(self._base, method)


@cache
def case(
    preset: str = FP8, name: str = "gaussian", *, context: int = 2048, rows: int = 8, topk: int = 64, seed: int = 0
) -> Inputs:
    """A generated case in the preset's geometry; row lengths from no key at all to all of them."""
    return build_case(name, context=context, rows=rows, topk=topk, seed=seed, geometry=PRESETS[preset].geometry)


@cache
def small_keys() -> Inputs:
    """Keys whose mean square is about the norm's eps."""
    inputs = case()
    return replace(inputs, pooled=inputs.pooled * np.float32(1e-3))


@cache
def skipped_keys() -> Inputs:
    """A case whose longest request has three keys at its end that must not be stored."""
    inputs = case()
    slots, counts = inputs.slots.copy(), inputs.key_counts.copy()
    skipped = (inputs.key_request == 0) & (inputs.key_index >= counts[0] - 3)
    slots[skipped] = -1
    counts[0] -= 3
    return replace(inputs, slots=slots, key_counts=counts)

"""Layers that share one allocation: does each find its own bytes, or another layer's?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dsa_crosscheck.compare.code_certificate import certify_codes, certify_scales
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.keys import judge_keys
from dsa_crosscheck.compare.stages.scores import visible
from dsa_crosscheck.compare.verdict import Verdict, overall
from dsa_crosscheck.reference.cache import read_records
from dsa_crosscheck.reference.record import unpack_record

Store = Callable[..., None]
"""``store(layer, pooled, norm_weight, rope_table, positions, slots, pool uint8 [layers, pages, page_bytes])``: a
candidate's ``store_keys`` into one layer of the allocation."""


@dataclass(frozen=True)
class Layer:
    """One layer's bytes after all layers were stored: its lines, and sentences on what they are."""

    index: int
    results: tuple[StageResult, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Of all lines."""
        return overall(r.verdict for r in self.results)


@dataclass(frozen=True)
class LayerCheck:
    """Every layer of one allocation."""

    layers: tuple[Layer, ...]

    @property
    def verdict(self) -> Verdict:
        """The first failing layer's, else the worst."""
        return overall(layer.verdict for layer in self.layers)

    def __str__(self) -> str:
        """A line for each layer."""
        return "\n".join(
            f"layer {layer.index}: {layer.verdict.value}" + (f" - {'; '.join(layer.notes)}" if layer.notes else "")
            for layer in self.layers
        )


def check_layers(store: Store, setups: Sequence[Setup]) -> LayerCheck:
    """Store every layer's keys into one zeroed allocation, then judge each layer's own bytes.

    ``setups``: one a layer, with equal sizes and conventions and different keys. ``ValueError`` for fewer
    than two, or caches of different shape.
    """
    shapes = {setup.trace.cache.shape for setup in setups}
    if len(setups) < 2 or len(shapes) > 1:
        raise ValueError(
            f"`check_layers(setups=...)` should be at least two with caches of one shape, got {len(setups)} with "
            f"{sorted(shapes)}"
        )
    (shape,) = shapes
    pool = torch.zeros(len(setups), *shape, dtype=torch.uint8)
    for layer, setup in enumerate(setups):
        inputs = setup.inputs
        numbers = (inputs.pooled, setup.norm_weight, inputs.rope_table, setup.positions, inputs.slots)
        store(layer, *(torch.from_numpy(array.copy()) for array in numbers), pool)
    caches = pool.numpy()
    layers = []
    for layer, setup in enumerate(setups):
        results = judge_keys((np.zeros(shape, np.uint8), caches[layer]), setup)
        failed = any(result.verdict.failed for result in results)
        notes = tuple(_notes(layer, caches, setups)) if failed else ()
        layers.append(Layer(layer, tuple(results), notes))
    return LayerCheck(tuple(layers))


def _notes(layer: int, caches: np.ndarray, setups: Sequence[Setup]) -> list[str]:
    """Zero regions, scores that say nothing, and the layer where the bytes are."""
    setup = setups[layer]
    notes = []
    for name, part in _parts(setup).items():
        if not _bytes(caches[layer], setup, part).any():
            notes.append(f"{name} bytes in its pages are zero")
        holders = [m for m in range(len(setups)) if m != layer and _holds(caches[m], setup, name)]
        if holders:
            notes.append(f"layer {holders[0]}'s {name} bytes equal layer {layer}'s expected bytes")
    _, codes, weights = setup.scorer_input
    with np.errstate(all="ignore"):  # bytes of another layer can be any number
        got = setup.judge(caches[layer], codes, weights)[0].values
    want, seen = setup.shared_scores[0].values, visible(setup.trace.lengths, got.shape[1])
    if (got[seen] == 0).all() and (want[seen] != 0).any():
        notes.insert(
            0, "all scores exactly 0 while the reference's are not: a selection would be decided by ties alone"
        )
    return notes


def _parts(setup: Setup) -> dict[str, slice]:
    """Bytes of a record by name; a format without scales has only values."""
    width = setup.layout.value_bytes
    parts = {"value": slice(0, width)}
    return parts | ({"scale": slice(width, None)} if setup.layout.scale_bytes else {})


def _bytes(cache: np.ndarray, setup: Setup, part: slice) -> np.ndarray:
    slots = setup.inputs.slots
    return read_records(cache, setup.layout, slots[slots >= 0])[:, part]


def _holds(cache: np.ndarray, setup: Setup, name: str) -> bool:
    """Whether ``cache`` holds what ``setup`` should have stored, up to admissible rounding."""
    stored = setup.inputs.slots >= 0
    codec, head_dim = setup.conventions.key, setup.inputs.geometry.head_dim
    records = read_records(cache, setup.layout, setup.inputs.slots[stored])
    got, want = (unpack_record(r, codec, head_dim) for r in (records, setup.trace.records[stored]))
    values, bound = setup.trace.keys.rotated[stored], setup.key_bound.rotated[stored]
    if name == "scale":
        return bool(certify_scales(values, bound, got.scales, codec).explained.all())
    # Codes are judged beside the reference's scales: whose scales lie there is another question.
    return bool(certify_codes(values, bound, type(got)(got.codes, want.scales), want, codec).explained.all())

"""Measured footprints of read paths, without the memory they would take.

- ``unfused`` and ``transformers`` run their own code on fake tensors, which have shapes and no data.
- ``reference`` asks XLA what the compiled block needs; its two numpy arrays are counted from shapes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsa_crosscheck.compare.studies.allocation_tracker import AllocationTracker
from dsa_crosscheck.compare.studies.formats import conventions_of
from dsa_crosscheck.compare.studies.read_path import Footprint, ReadSizes
from dsa_crosscheck.cuda_impl.unfused.cache import gather_keys, page_layout, split_record
from dsa_crosscheck.cuda_impl.unfused.score import score_dense
from dsa_crosscheck.reference import score as reference_score


def measured(path: str, format_name: str, sizes: ReadSizes) -> Footprint | None:
    """What ``path`` allocates for ``sizes``; None for a path that can't be measured on this machine."""
    if path == "unfused":
        return _unfused(format_name, sizes)
    if path == "transformers":
        return _transformers(sizes)
    if path == "reference":
        return _reference(sizes)
    return None


def _unfused(format_name: str, s: ReadSizes) -> Footprint:
    c = conventions_of(format_name, hadamard=True)
    layout = page_layout(c.key, s.geometry, c.page_order)
    query_bytes = c.query.record_bytes(s.geometry.head_dim)
    with FakeTensorMode(allow_non_fake_inputs=True):
        cache = torch.empty(s.pages, layout.page_bytes, dtype=torch.uint8)
        pages = torch.empty(s.rows, s.pages, dtype=torch.int64)
        codes = torch.empty(s.rows, s.geometry.heads, query_bytes, dtype=torch.uint8)
        weights = torch.empty(s.rows, s.geometry.heads)
        lengths = torch.empty(s.rows, dtype=torch.int32)
        with AllocationTracker() as tracker:
            keys = gather_keys(cache, pages, c.key, layout)
            keys = keys._replace(values=keys.values[:, : s.keys], scales=keys.scales[:, : s.keys])
            query = split_record(codes, c.query, c.query.value_bytes(s.geometry.head_dim))
            score_dense(query, weights, keys, lengths, c)
    return _of(tracker)


def _transformers(s: ReadSizes) -> Footprint | None:
    try:
        from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4IndexerScorer
    except ImportError:
        return None
    g = s.geometry
    config: Any = SimpleNamespace(index_head_dim=g.head_dim, index_n_heads=g.heads, hidden_size=g.heads)
    scorer: Any = DeepseekV4IndexerScorer(config).requires_grad_(False)
    scorer.weights_proj = torch.nn.Identity()  # head weights are an input, as for the other paths
    with FakeTensorMode(allow_non_fake_inputs=True):
        query = torch.empty(1, s.rows, g.heads, g.head_dim, dtype=torch.bfloat16)
        keys = torch.empty(1, s.keys, g.head_dim, dtype=torch.bfloat16)
        gate = torch.empty(1, s.rows, g.heads, dtype=torch.bfloat16)
        with AllocationTracker() as tracker:
            scorer(query, keys, gate)
    return _of(tracker)


def _of(tracker: AllocationTracker) -> Footprint:
    name = " x ".join(f"{size:,}" for size in tracker.shape)
    return Footprint(tracker.peak, tracker.largest, (name,), (tracker.source,))


def _reference(s: ReadSizes) -> Footprint:
    rows, keys = reference_score.ROW_BLOCK, reference_score.KEY_BLOCK
    g = s.geometry
    function = jax.jit(reference_score._score_block.__wrapped__, static_argnames=("relu", "chain"))  # type: ignore[attr-defined]
    shapes = ((rows, g.heads, g.head_dim), (rows, g.heads), (keys, g.head_dim))
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        arguments = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
        analysis: Any = function.lower(*arguments, relu=True, chain=False).compile().memory_analysis()
    block = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    scores = s.rows * s.keys * 8
    largest = max(scores, analysis.temp_size_in_bytes)
    name = "numpy scores (counted)" if largest == scores else "XLA temporaries"
    return Footprint(2 * scores + block, largest, (name,), ("XLA memory analysis",))

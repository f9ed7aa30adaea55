"""Hugging Face's ``DeepseekV4Indexer`` as a module to feed and to observe.

The class is used as published. What surrounds it here are stand-ins for submodules whose output is an
input of ours (linear projections, rotary table), and hooks that note what passes between its submodules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from dsa_crosscheck.fixtures.rope_table import COMPRESS_THETA, Yarn
from dsa_crosscheck.reference.geometry import Geometry


class Columns(nn.Module):
    """Stands in for a linear projection: its output is columns ``start`` to ``stop`` of its input."""

    def __init__(self, start: int, stop: int | None) -> None:
        super().__init__()
        self.columns = slice(start, stop)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states[..., self.columns]


class TableRotary(nn.Module):
    """Stands in for the rotary embedding: cos and sin come from a table [positions, rope_dim]."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = table

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.table[position_ids]
        return rows[..., 0::2].to(x.dtype), rows[..., 1::2].to(x.dtype)


class GivenScores(nn.Module):
    """Stands in for the scorer: returns scores made elsewhere."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, q: torch.Tensor, compressed_kv: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.scores


def indexer_config(geometry: Geometry, hidden: int, norm_eps: float, yarn: Yarn | None = None) -> Any:
    """A ``DeepseekV4Config`` with one compressed-attention layer of these sizes.

    ``ImportError`` says which extra to install when transformers has no such class.
    """
    try:
        from transformers import DeepseekV4Config
    except ImportError as error:
        raise ImportError(
            "the candidate transformers-v4 needs transformers >= 5.24: install the extra dsa-crosscheck[peers]"
        ) from error
    rope: dict[str, Any] = {"rope_type": "default"}
    if yarn is not None:
        rope = {
            "rope_type": "yarn",
            "factor": float(yarn.factor),
            "original_max_position_embeddings": yarn.original_positions,
            "beta_fast": float(yarn.beta_fast),
            "beta_slow": float(yarn.beta_slow),
        }
    return DeepseekV4Config(
        hidden_size=hidden,
        q_lora_rank=hidden,
        head_dim=geometry.head_dim,
        partial_rotary_factor=geometry.rope_dim / geometry.head_dim,
        index_n_heads=geometry.heads,
        index_head_dim=geometry.head_dim,
        index_topk=geometry.topk,
        rms_norm_eps=norm_eps,
        compress_rope_theta=COMPRESS_THETA,
        rope_parameters=rope,
        num_hidden_layers=1,
        layer_types=["compressed_sparse_attention"],
        mlp_layer_types=["moe"],
        compress_rates={"compressed_sparse_attention": geometry.compress_ratio, "heavily_compressed_attention": 128},
    )


def build_indexer(config: Any) -> Any:
    """A float32 ``DeepseekV4Indexer`` on the CPU; its weights are not set."""
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4Indexer

    return DeepseekV4Indexer(config).eval().requires_grad_(False)


def new_cache(config: Any) -> Any:
    """The library's own empty cache layer for compressed attention, where ``forward`` looks for it."""
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4CSACache

    return SimpleNamespace(layers=[DeepseekV4CSACache(config)])


def own_rope_table(indexer: Any, positions: int) -> np.ndarray:
    """cos and sin of the module's own rotary embedding, float32 [positions, rope_dim], interleaved.

    It multiplies float32 frequencies and positions in float32, so its angles are off by up to about
    1e-7 of themselves.
    """
    cos, sin = indexer.rotary_emb(torch.zeros(1), torch.arange(positions)[None], layer_type=indexer.rope_layer_type)
    return torch.stack([cos[0], sin[0]], dim=-1).flatten(1).numpy()


@contextmanager
def substituted(module: Any, name: str, stand_in: nn.Module) -> Iterator[None]:
    """Put ``stand_in`` in place of submodule ``name`` inside the block."""
    original = getattr(module, name)
    setattr(module, name, stand_in)
    try:
        yield
    finally:
        setattr(module, name, original)


class Observations:
    """Tensors that passed between submodules, by name, in order of calls.

    ``kv``, ``gate_scores``, ``raw_query``, ``raw_gate``: outputs of the projections. ``pooled`` and
    ``normed``: input and output of the norm. ``query``, ``keys``: both inputs of the scorer, after RoPE;
    ``scores``: its output, before the causal mask.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[torch.Tensor]] = {}

    def note(self, name: str, tensor: torch.Tensor) -> None:
        """Keep ``tensor`` as the next one called ``name``."""
        self._seen.setdefault(name, []).append(tensor)

    def last(self, name: str) -> torch.Tensor:
        """The latest tensor called ``name``; ``KeyError`` if none passed."""
        return self._seen[name][-1]

    def joined(self, name: str, width: int) -> torch.Tensor:
        """All tensors [1, n, ...] called ``name`` as one [sum of n, ...]; [0, width] if none passed."""
        tensors = self._seen.get(name, [])
        return torch.cat([t[0] for t in tensors]) if tensors else torch.zeros(0, width)


def padded(chosen: torch.Tensor, topk: int) -> torch.Tensor:
    """``chosen`` [rows, k], with -1 up to ``topk`` columns, int32: the library returns no more than it has keys."""
    return torch.nn.functional.pad(chosen, (0, topk - chosen.shape[1]), value=-1).to(torch.int32)


@contextmanager
def observed(indexer: Any) -> Iterator[Observations]:
    """Note what passes through ``indexer`` inside the block."""
    seen = Observations()

    def output(module: nn.Module, name: str) -> Any:
        return module.register_forward_hook(lambda _module, _inputs, result: seen.note(name, result))

    def inputs(module: nn.Module, *names: str) -> Any:
        def note(_module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            for name, tensor in zip(names, arguments, strict=False):
                seen.note(name, tensor)

        return module.register_forward_pre_hook(note)

    handles = [
        output(indexer.kv_proj, "kv"),
        output(indexer.gate_proj, "gate_scores"),
        output(indexer.q_b_proj, "raw_query"),
        inputs(indexer.kv_norm, "pooled"),
        output(indexer.kv_norm, "normed"),
        inputs(indexer.scorer, "query", "keys"),
        output(indexer.scorer, "scores"),
    ]
    # A stand-in for the scorer has no projection inside.
    if hasattr(indexer.scorer, "weights_proj"):
        handles.append(output(indexer.scorer.weights_proj, "raw_gate"))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()

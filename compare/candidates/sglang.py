"""Candidate ``sglang``: the kernels of SGLang's V4 indexer, built from the installed package.

It pools by prefill batches, stores by extend plans and selects by top-k v2, as serving does. Its
query path and its scorer (DeepGEMM's) are not offered.
"""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.sglang_build import POOL, VERSION, find_sources, load, refusal_of_bf16, target_of
from dsa_crosscheck.compare.candidates.sglang_launch import StoreArguments, select_launch, settle, store_launch
from dsa_crosscheck.compare.candidates.sglang_plans import MOST_RAGGED, RATIO, extend_plan, padded_scores, pool_plans
from dsa_crosscheck.cuda_impl import build
from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.reference.conventions import Conventions, get_field, paths
from dsa_crosscheck.reference.presets import PRESETS

HEAD_DIM = 128
ROPE_DIM = 64
POOL_TOKENS = 8192
"""Raw tokens of one prefill batch; the state carries a group from each to the next."""

PRESET_OF_FORMAT = {"fp8-e4m3fn": "sglang-v4-fp8", "fp4-e2m1": "sglang-v4-fp4"}
"""The conventions that the kernels follow, by the format of the key."""


class Sglang:
    """SGLang's own pooling, fused store (fp8, fp4) and top-k v2 on a GPU.

    ``conventions`` None or those of ``PRESET_OF_FORMAT``, with any ``norm_eps``. Raises ``Unsupported``
    naming the first other field, and without the package, a GPU that it is built for, or nvcc.
    """

    name = "sglang"
    device = "cuda"

    def __init__(self, conventions: Conventions | None = None) -> None:
        find_sources()
        if not torch.cuda.is_available():
            raise Unsupported("candidate 'sglang' needs a CUDA GPU that torch can use, and found none")
        self._capability = torch.cuda.get_device_capability()
        target_of(self._capability)
        try:
            build.nvcc()
        except build.BuildError as error:
            raise Unsupported(f"candidate 'sglang' builds with nvcc: {error}") from error
        self.conventions = conventions or PRESETS["sglang-v4-fp8"].conventions
        if self.conventions.key.format == "bf16":
            refusal = refusal_of_bf16(self._capability)
            raise Unsupported(f"sglang {VERSION} stores no index keys of key.format='bf16': {refusal}")
        check_conventions(self.conventions)

    def pool(self, kv_score: torch.Tensor, position_bias: torch.Tensor) -> torch.Tensor:
        """See ``Candidate``."""
        _expect_size("compress_ratio", position_bias.shape[0], RATIO)
        _expect_size("head_dim", position_bias.shape[1] // 2, HEAD_DIM)
        tokens = kv_score.shape[0] // RATIO * RATIO
        pooled = kv_score.new_empty(tokens // RATIO, HEAD_DIM)
        prefill = load(POOL, self._capability).prefill
        state = kv_score.new_zeros(2, RATIO, 4 * HEAD_DIM)
        bias = torch.cat(position_bias.split(HEAD_DIM, dim=1))
        for start in range(0, tokens, POOL_TOKENS):
            piece = kv_score[start : min(start + POOL_TOKENS, tokens)]
            plans = pool_plans(start, piece.shape[0], kv_score.device)
            made = pooled[start // RATIO : start // RATIO + plans[0].shape[0]]
            settle(kv_score.device)
            prefill(state, piece, made, bias, *plans)
        return pooled

    def store_keys(
        self,
        pooled: torch.Tensor,
        norm_weight: torch.Tensor,
        rope_table: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        cache: torch.Tensor,
    ) -> None:
        """See ``Candidate``."""
        _expect_size("head_dim", pooled.shape[1], HEAD_DIM)
        _expect_size("rope_dim", rope_table.shape[1], ROPE_DIM)
        key = self.conventions.key
        page_size = cache.shape[1] // key.record_bytes(HEAD_DIM)
        count = pooled.shape[0]
        check_tensors(
            "store_keys",
            pooled=(pooled, torch.float32, (count, HEAD_DIM)),
            norm_weight=(norm_weight, torch.float32, (HEAD_DIM,)),
            rope_table=(rope_table, torch.float32, ("positions", ROPE_DIM)),
            positions=(positions, torch.int64, (count,)),
            slots=(slots, torch.int64, (count,)),
            cache=(cache, torch.uint8, ("pages", page_size * key.record_bytes(HEAD_DIM))),
        )
        check_range("store_keys", "positions", positions, 0, rope_table.shape[0])
        check_range("store_keys", "slots", slots.clamp(min=-1), -1, cache.shape[0] * page_size)
        for start in range(0, count, MOST_RAGGED):
            some = slice(start, start + MOST_RAGGED)
            given = StoreArguments(pooled[some], norm_weight, self.conventions.norm_eps, rope_table, slots[some], cache)
            plan = extend_plan(positions[some], slots[some])
            store_launch(given, plan, key_format=key.format, page_size=page_size, decode=False)()

    def select(self, scores: torch.Tensor, lengths: torch.Tensor, topk: int) -> torch.Tensor:
        """See ``Candidate``."""
        sizes = check_tensors(
            "select", scores=(scores, torch.float32, ("rows", "n")), lengths=(lengths, torch.int32, ("rows",))
        )
        check_range("select", "lengths", lengths, 0, sizes["n"] + 1)
        padded, padded_lengths = padded_scores(scores, lengths)
        selected = lengths.new_empty(padded.shape[0], topk)
        select_launch(padded, padded_lengths, selected)()
        return selected[: sizes["rows"]]


def check_conventions(conventions: Conventions) -> None:
    """``Unsupported`` naming the first field that differs from what the kernels do."""
    name = PRESET_OF_FORMAT.get(conventions.key.format)
    if name is None:
        known = " or ".join(map(repr, PRESET_OF_FORMAT))
        raise Unsupported(f"candidate 'sglang' stores only key.format={known}, got {conventions.key.format!r}")
    own = PRESETS[name].conventions
    for path in paths(own):
        value, only = get_field(conventions, path), get_field(own, path)
        if path != "norm_eps" and value != only:
            shown = tuple(sorted(v) if isinstance(v, frozenset) else v for v in (only, value))
            raise Unsupported(f"candidate 'sglang' implements only {path}={shown[0]!r}, got {shown[1]!r}")


def _expect_size(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise Unsupported(f"candidate 'sglang' is built for {name}={expected}, got {got}")

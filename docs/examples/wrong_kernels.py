"""Kernels that are wrong in one way each; the transcripts of docs/selections-differ.md come from them.

From this folder: dsa-crosscheck compare --candidate wrong_kernels:half_split_rope --case gaussian
"""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.reference.presets import PRESETS

SGLANG = PRESETS["sglang-v4-fp8"].conventions


class Wrong(ReferenceCandidate):
    """The reference under other conventions than those it claims, or with a fault of its own."""

    def __init__(self, name: str, **flips: object) -> None:
        computed = SGLANG
        for path, value in flips.items():
            computed = computed.with_field(path.replace("__", "."), value)
        super().__init__(computed)
        self.name = name


class LastPageUnread(Wrong):
    def score(self, codes, weights, cache, block_table, request_of_row, lengths):  # type: ignore[no-untyped-def]
        scores = super().score(codes, weights, cache, block_table, request_of_row, lengths)
        column = torch.arange(scores.shape[1])
        scores[(column >= (lengths[:, None] - 1) // 64 * 64) & (column < lengths[:, None])] = 0.0
        return scores


class Bf16Scores(Wrong):
    def score(self, *arguments):  # type: ignore[no-untyped-def]
        return super().score(*arguments).bfloat16().float()


class Doubled(Wrong):
    def score(self, *arguments):  # type: ignore[no-untyped-def]
        return 2 * super().score(*arguments)


class Repeated(Wrong):
    def select(self, scores, lengths, topk):  # type: ignore[no-untyped-def]
        chosen = super().select(scores, lengths, topk)
        chosen[:, 1] = chosen[:, 0]
        return chosen


class Corrupt(Wrong):
    def score(self, *arguments):  # type: ignore[no-untyped-def]
        scores = super().score(*arguments)
        at = torch.randint(scores.numel(), (9,), generator=torch.Generator().manual_seed(1))
        scores.view(-1)[at] += torch.linspace(0.1, 0.7, 9)
        return scores


class Racy(Wrong):
    calls = 0

    def score(self, *arguments):  # type: ignore[no-untyped-def]
        scores = super().score(*arguments)
        Racy.calls += 1
        if Racy.calls % 7 == 0:
            scores[0, 125] = 0.0
        return scores


half_split_rope = Wrong("half-split RoPE", rope_pairing="half-split")
no_hadamard_on_keys = Wrong("no Hadamard on keys", hadamard_key=False)
last_page_unread = LastPageUnread("last page unread")
bf16_scores = Bf16Scores("bf16 scores")
doubled = Doubled("doubled scores")
repeated = Repeated("a key twice")
corrupt = Corrupt("nine scores off")
racy = Racy("a race")

"""Which faults each fixture can see: every mutant judged on every fixture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.mutants.mutant import Mutant, fault_mutants, flip_mutants
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.fixtures.golden.golden import Golden

REPEATS = 2
"""Repeats for the mutants that only a second call betrays."""

FAMILY_OF_FIELD: dict[str, str] = {
    "norm": "norm",
    "norm_eps": "norm",
    "rope_pairing": "RoPE",
    "rope_dims": "RoPE",
    "rope_position": "RoPE",
    "hadamard_key": "Hadamard",
    "hadamard_query": "Hadamard",
    "hadamard_order": "Hadamard",
    "hadamard_scale": "Hadamard",
    "lane_order_key": "lanes",
    "lane_order_query": "lanes",
    "key": "key codec",
    "query": "query codec",
    "bf16_points": "bf16 points",
    "query_scale_in": "head weights",
    "weight_dtype": "head weights",
    "weight_scale": "head weights",
    "relu": "scores",
    "score_rounding": "scores",
    "causal": "causal",
    "topk_ties": "top-k rules",
    "topk_order": "top-k rules",
    "topk_padding": "top-k rules",
    "topk_nan": "top-k rules",
    "page_order": "page order",
}
"""Family of a flipped convention; a codec's field belongs to its operand."""

FAMILY_OF_STAGE: dict[str, str] = {
    "pool": "bad pooling",
    "store_keys": "bad store",
    "encode_query": "bad query",
    "score": "bad scorer",
    "select": "bad selector",
}
"""Family of a structural fault."""

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys([*FAMILY_OF_FIELD.values(), *FAMILY_OF_STAGE.values()]))


@dataclass(frozen=True)
class Coverage:
    """By family, names of the mutants that were ``judged`` on a fixture, and of those ``seen`` to fail."""

    fixture: str
    seen: Mapping[str, tuple[str, ...]]
    judged: Mapping[str, tuple[str, ...]]

    @property
    def total(self) -> int:
        """Mutants seen in all families together."""
        return sum(len(names) for names in self.seen.values())


def coverage(golden: Golden, progress: Callable[[str], None] = lambda mutant: None) -> Coverage:
    """Judge every mutant of the fixture's conventions on its inputs.

    A flip of a storage format is left out: with it even the sizes differ, which any inputs show.
    ``ValueError`` when the right candidate itself fails, since then nothing else means anything.
    """
    inputs, conventions = golden.inputs, golden.conventions
    right = ReferenceCandidate(conventions)

    def fails(candidate: object, repeat: int) -> bool:
        # Wrong numbers overflow where right ones do not.
        with np.errstate(all="ignore"):
            report = crosscheck(inputs, candidate, preset=conventions, repeat=repeat, explain=False)
        return report.verdict.failed or report.verdict is Verdict.REFUSED

    if fails(right, REPEATS):
        raise ValueError(f"`coverage(golden=...)` should pass the reference itself, got {golden.name} which fails it")
    seen: dict[str, list[str]] = {family: [] for family in FAMILIES}
    judged: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for family, mutant in _mutants(golden):
        progress(f"{golden.name}: {mutant.name}")
        judged[family].append(mutant.name)
        if fails(mutant.make(right, inputs), REPEATS if mutant.needs_repeat else 0):
            seen[family].append(mutant.name)
    return Coverage(
        golden.name, {f: tuple(names) for f, names in seen.items()}, {f: tuple(n) for f, n in judged.items()}
    )


def _mutants(golden: Golden) -> list[tuple[str, Mutant]]:
    found = []
    for mutant in flip_mutants(golden.conventions):
        if not mutant.field.endswith(".format"):
            found.append((FAMILY_OF_FIELD[re.split(r"[.+-]", mutant.field)[0]], mutant))
    return found + [(FAMILY_OF_STAGE[mutant.stage], mutant) for mutant in fault_mutants()]

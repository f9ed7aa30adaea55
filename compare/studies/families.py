"""Families of input data for the precision study, each as rows that search a whole context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsa_crosscheck.compare.studies.operands import at_rows
from dsa_crosscheck.fixtures.bfloat16 import round_to_bf16
from dsa_crosscheck.fixtures.captured import load_captured
from dsa_crosscheck.fixtures.case_file import load_case
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.causal import row_lengths
from dsa_crosscheck.reference.inputs import Inputs

Builder = Callable[[int, int, int], Inputs]
COMPENSATED_GAIN = 8.0


@dataclass(frozen=True)
class Family:
    """``build(context, rows, seed)``; a ``drawn`` one gives other numbers for another seed.

    ``largest``: raw tokens that it can give, None without a limit.
    """

    build: Builder
    what: str
    drawn: bool = True
    largest: int | None = None


def _at_the_end(name: str) -> Builder:
    """A generated case whose rows all sit at the last token: each then searches the whole context."""

    def build(context: int, rows: int, seed: int) -> Inputs:
        inputs = build_case(name, context=context, rows=rows, seed=seed)
        return replace(
            inputs,
            query_positions=np.full(rows, context - 1, np.int64),
            request_of_row=np.zeros(rows, np.int32),
        )

    return build


def _compensated(context: int, rows: int, seed: int) -> Inputs:
    """Gaussian, with a quarter of the channels large in keys and as much smaller in queries.

    A gain moved from queries into the keys' norm weight leaves every exact product as it was. Both
    channels of a rotary pair share their gain, so that RoPE does not mix large and small. Channels
    are one contiguous run, which lies in few groups of 32.
    """
    inputs = _at_the_end("gaussian")(context, rows, seed)
    dim = inputs.geometry.head_dim
    gain = np.where(np.arange(dim) < dim // 4, COMPENSATED_GAIN, 1.0)
    return replace(
        inputs,
        norm_weight=(inputs.norm_weight * gain).astype(np.float32),
        query=round_to_bf16(inputs.query / gain).astype(np.float32),
    )


def _captured(context: int, rows: int, seed: int) -> Inputs:
    """The captured rows that see the most of the text; the seed only places pages."""
    positions = load_captured().query_positions
    inputs = build_case("captured-text", context=context, rows=int((positions < context).sum()), seed=seed)
    return _longest(inputs, rows)


def _longest(inputs: Inputs, rows: int) -> Inputs:
    order = np.argsort(-row_lengths(inputs, "finished-groups"), kind="stable")[:rows]
    return at_rows(inputs, np.sort(order))


FAMILIES: dict[str, Family] = {
    "gaussian": Family(_at_the_end("gaussian"), "independent normal numbers"),
    "outlier": Family(_at_the_end("outlier"), "four channels of keys and queries times eight"),
    "compensated": Family(_compensated, "a quarter of the channels times eight in keys and over eight in queries"),
    "spread": Family(_at_the_end("spread"), "key, query and gate sizes over six octaves"),
    "plateau": Family(_at_the_end("plateau"), "correlated heads and repeated keys: many equal scores"),
    "captured-text": Family(
        _captured, "a text encoder's hidden states, seeded projections", drawn=False, largest=load_captured().tokens
    ),
}
"""Families by name; a path of a case file is a family as well (``family_of``)."""


def family_of(name: str) -> Family:
    """The family called ``name``, or of the case file at that path; ``ValueError`` for neither."""
    if name in FAMILIES:
        return FAMILIES[name]
    if not Path(name).is_file():
        raise ValueError(f"`family` should be one of {tuple(FAMILIES)} or a case file, got {name!r}")
    whole = load_case(name)
    tokens = int(whole.key_counts.max(initial=0)) * whole.geometry.compress_ratio
    return Family(lambda context, rows, seed: _longest(whole, rows), "case file", drawn=False, largest=tokens)

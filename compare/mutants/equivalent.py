"""Mutants that no check should kill, each with the reason: they are correct, or the same computation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsa_crosscheck.compare.mutants.mutant import Mutant
from dsa_crosscheck.reference.presets import TINY, Preset


@dataclass(frozen=True)
class Equivalent:
    """``mutant``: a mutant's name or the field that it flips; ``when``: the presets for which it is one."""

    mutant: str
    reason: str
    when: Callable[[Preset], bool] = lambda preset: True


def equivalence(mutant: Mutant, preset: Preset) -> str:
    """Why ``mutant`` is no fault under ``preset``; empty when it is one."""
    return next((e.reason for e in EQUIVALENT if e.mutant in (mutant.name, mutant.field) and e.when(preset)), "")


def _one_token_a_key(preset: Preset) -> bool:
    return preset.geometry.compress_ratio == 1


def _no_key_scale(preset: Preset) -> bool:
    return not preset.conventions.key.scale_bytes


def _rounds_scores_to(*kinds: str) -> Callable[[Preset], bool]:
    return lambda preset: preset.conventions.score_rounding in kinds


def _bf16_weights(preset: Preset) -> bool:
    return preset.conventions.weight_dtype == "bf16"


def _any_order(preset: Preset) -> bool:
    return preset.conventions.topk_order == "any"


def _without_point(point: str) -> Callable[[Preset], bool]:
    return lambda preset: point not in preset.conventions.bf16_points


def _tiny_floor_of(operand: str) -> Callable[[Preset], bool]:
    return lambda preset: getattr(preset.conventions, operand).amax_floor == TINY


_ROUNDING = "one float32 rounding more or less, which the bound of a scaled value allows"
_FREE_TIE = "exact midpoints cannot be told from values within a float32 error of them"
_FLUSHED = "a floor this close to 2^-126 lies within what the bound lets float32 arithmetic lose there"
_FINER = "a score rounded less lies within the bound of one rounded more"
_FINER_WEIGHT = "a weight that is not rounded lies within the bound of one that is"
_ROUNDED_WEIGHT = "the weights are bf16 numbers already"
_ONE_TOKEN = "a key is one token: its group has no first and last, and nothing is pooled"
_NO_SCALE = "keys carry no scale"

EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent("key.scale_from", _ROUNDING),
    Equivalent("key.apply", _ROUNDING),
    Equivalent("query.scale_from", _ROUNDING),
    Equivalent("query.apply", _ROUNDING),
    Equivalent("key.floor_on", _FLUSHED, _tiny_floor_of("key")),
    Equivalent("query.floor_on", _FLUSHED, _tiny_floor_of("query")),
    Equivalent("key.ties", _FREE_TIE, _without_point("key-rotated")),
    Equivalent("query.ties", _FREE_TIE, _without_point("query-rotated")),
    Equivalent(
        "bf16_points+key-rotated", "keys are stored as bf16 anyway", lambda p: p.conventions.key.format == "bf16"
    ),
    Equivalent("bf16_points+query-rotated", "queries are bf16 anyway", lambda p: p.conventions.query.format == "bf16"),
    Equivalent("weight_dtype=fp32", _FINER_WEIGHT),
    Equivalent("score_rounding=none", _FINER),
    Equivalent("score_rounding=fp16", _FINER, _rounds_scores_to("bf16", "bf16-chain")),
    Equivalent("score_rounding=bf16", _FINER, _rounds_scores_to("bf16-chain")),
    Equivalent("topk_ties", "which of equal scores wins is free"),
    Equivalent("topk_order", "no order is declared", _any_order),
    Equivalent(
        "topk_padding=int-max",
        "any index past a row's length is accepted as a future one",
        lambda p: p.conventions.topk_padding == "future",
    ),
    Equivalent("rope_position", _ONE_TOKEN, _one_token_a_key),
    Equivalent("causal", _ONE_TOKEN, _one_token_a_key),
    Equivalent("page_order=token-interleaved", _NO_SCALE + ": both orders are the same bytes", _no_key_scale),
    *(
        Equivalent(name, _ONE_TOKEN, _one_token_a_key)
        for name in (
            "pool-first-overlap-zeros",
            "pool-halves-swapped",
            "pool-bias-next-phase",
            "pool-bias-halves-swapped",
            "pool-bias-missing",
            "pool-own-slots-only",
            "pool-one-group-late",
            "store-rope-last-token",
        )
    ),
    *(
        Equivalent(name, _NO_SCALE, _no_key_scale)
        for name in (
            "store-amax-of-half",
            "store-neighbour-scale",
            "store-scales-next-page",
            "score-neighbour-scale",
            "score-scale-missing",
        )
    ),
    Equivalent(
        "query-scale-not-folded",
        "no scale is folded into the weights",
        lambda p: p.conventions.query_scale_in != "weights",
    ),
    Equivalent("query-weights-bf16", _ROUNDED_WEIGHT, _bf16_weights),
    Equivalent("score-weights-bf16", _ROUNDED_WEIGHT, _bf16_weights),
    Equivalent("score-bf16", "scores are bf16 numbers already", _rounds_scores_to("bf16", "bf16-chain")),
    Equivalent("score-fp16", "bf16 scores are fp16 numbers too", _rounds_scores_to("bf16", "bf16-chain")),
    Equivalent("select-order-reversed", "no order is declared", _any_order),
)
"""The table is exact: an equivalent mutant that is killed is an error, as is any other that survives."""

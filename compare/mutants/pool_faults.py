"""Faults of the pooling stage."""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.mutants.fault import Fault, Right


def _first_group_reads_zeros(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    # A group of zeros before the first: its scores are the bias alone, so the zeros take a share.
    before = torch.zeros(bias.shape[0], kv_score.shape[1])
    return right.candidate.pool(torch.cat([before, kv_score]), bias)[1:]


def _halves_swapped(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    overlap_kv, own_kv, overlap_score, own_score = kv_score.chunk(4, dim=1)
    return right.candidate.pool(torch.cat([own_kv, overlap_kv, own_score, overlap_score], dim=1), bias)


def _bias_of_next_phase(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return right.candidate.pool(kv_score, bias.roll(-1, 0))


def _bias_halves_swapped(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return right.candidate.pool(kv_score, bias.roll(bias.shape[1] // 2, 1))


def _bias_missing(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return right.candidate.pool(kv_score, torch.zeros_like(bias))


def _own_slots_only(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    # The first group has no overlap: alone in its stretch, every group is a first one.
    ratio = bias.shape[0]
    groups = kv_score[: kv_score.shape[0] // ratio * ratio].split(ratio)
    return torch.cat([right.candidate.pool(group, bias) for group in groups])


def _one_group_late(right: Right, kv_score: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return right.candidate.pool(kv_score, bias).roll(1, 0)


POOL_FAULTS = (
    Fault(
        "pool-first-overlap-zeros",
        "pool",
        "the first group's missing overlap is read as zeros that take part in the softmax",
        _first_group_reads_zeros,
    ),
    Fault("pool-halves-swapped", "pool", "overlap and own halves of the projections are exchanged", _halves_swapped),
    Fault("pool-bias-next-phase", "pool", "each token gets the bias of the phase after its own", _bias_of_next_phase),
    Fault("pool-bias-halves-swapped", "pool", "overlap and own halves of the bias are exchanged", _bias_halves_swapped),
    Fault("pool-bias-missing", "pool", "the position bias is not added", _bias_missing),
    Fault("pool-own-slots-only", "pool", "the softmax covers a group's own tokens only", _own_slots_only),
    Fault("pool-one-group-late", "pool", "every group holds the key of the one before it", _one_group_late),
)

"""Checks of where stored rows go: plans, slots, positions.

A kernel trusts these values, so one that is out of range has to be found before. Only rows that
store are checked; a skipped row may hold anything.
"""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors

INVALID_SEQ_LEN = 0xFFFFFFFF
"""Marks a padding row of an extend plan (-1 in an int32 tensor)."""


def check_positive(function: str, name: str, value: int) -> None:
    """Raises ``ValueError`` unless ``value`` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{function}({name}=...)` should be a positive integer, got {value!r}")


def check_extend_rows(
    function: str,
    plan: torch.Tensor,
    out_loc: torch.Tensor,
    cache: torch.Tensor,
    *,
    count: int,
    ratio: int,
    positions: int,
    slots: int,
) -> None:
    """Checks an extend plan of ``count`` rows.

    ``positions`` is the length of the RoPE table and ``slots`` the capacity of ``cache``, which only
    says on which device the rest should be. Raises ``ValueError`` naming the argument for a wrong
    dtype, shape or device, a ragged_id outside ``out_loc``, a slot past the cache, or a seq_len whose
    group has no position in the table.
    """
    check_positive(function, "ratio", ratio)
    check_tensors(
        function,
        cache=(cache, cache.dtype, tuple(cache.shape)),
        plan=(plan, torch.int32, (count, 2)),
        out_loc=(out_loc, torch.int64, ("query tokens",)),
    )
    seq_len, ragged_id = (plan.to(torch.int64) & 0xFFFFFFFF).unbind(1)
    valid = seq_len != INVALID_SEQ_LEN
    if not bool(valid.any()):
        return
    ragged_id = torch.where(valid, ragged_id, 0)
    check_range(function, "plan ragged_id", ragged_id, 0, out_loc.shape[0])
    slot = torch.where(valid, out_loc[ragged_id], -1)
    check_range(function, "out_loc of plan row", slot.clamp(min=-1), -1, slots)
    check_range(function, "plan seq_len", torch.where(slot >= 0, seq_len, ratio), ratio, positions + ratio)


def check_decode_rows(
    function: str,
    seq_lens: torch.Tensor,
    out_loc: torch.Tensor,
    cache: torch.Tensor,
    *,
    count: int,
    ratio: int,
    positions: int,
    slots: int,
) -> None:
    """Checks ``count`` decode rows; arguments and errors are those of ``check_extend_rows``."""
    check_positive(function, "ratio", ratio)
    check_tensors(
        function,
        cache=(cache, cache.dtype, tuple(cache.shape)),
        seq_lens=(seq_lens, torch.int32, (count,)),
        out_loc=(out_loc, torch.int64, (count,)),
    )
    stored = (seq_lens > 0) & (seq_lens % ratio == 0) & (out_loc >= 0)
    check_range(function, "out_loc", torch.where(stored, out_loc, -1), -1, slots)
    check_range(function, "seq_lens", torch.where(stored, seq_lens, ratio), ratio, positions + ratio)

"""Plans that SGLang's kernels read: 16 bytes a row that say what it is and where it goes.

An extend row is (seq_len uint32, ragged_id uint16, buffer_len uint16, two state pages int32); a decode
row (seq_len uint32, state slot int32, two state pages int32); a row of a write plan (ragged_id uint32,
state slot int32). All plans are uint8 tensors. Source: SGLang deepseek_v4 ``compress_v2.cuh``.
"""

from __future__ import annotations

import torch

RATIO = 4
WINDOW = 2 * RATIO
"""Raw tokens that are pooled into a key: its group and the one before."""

MOST_RAGGED = 1 << 16
"""Raw tokens, or rows of a store, of one extend batch: ragged_id has 16 bits."""

INVALID = (-1, 0, -1, -1)
"""A row of an extend plan that is skipped."""


def extend_plan(positions: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """The plan of one stored key a row: uint8 [n, 16], n at most ``MOST_RAGGED``.

    ``positions`` int64 [n]: raw position of each key's rotation, the first of its group; ``slots`` int64
    [n], indexed by ragged_id, which is the row here. A negative slot makes a row that is skipped.
    """
    rows = torch.arange(positions.shape[0], device=positions.device)
    _check_ragged("extend_plan", rows.shape[0])
    nothing = torch.zeros_like(rows)
    plan = torch.stack([positions + RATIO, rows, nothing, nothing], dim=1)
    plan[slots < 0] = plan.new_tensor(INVALID)
    return _bytes(plan)


def decode_plan(seq_lens: torch.Tensor) -> torch.Tensor:
    """The plan of one request a row for a store: uint8 [n, 16] of ``seq_lens`` int32 [n].

    State slots and pages are 0: the store does not read them. A length that ends no group skips its row.
    """
    nothing = torch.zeros_like(seq_lens)
    return _bytes(torch.stack([seq_lens, nothing, nothing, nothing], dim=1))


def pool_plans(start: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Plans to pool ``count`` raw tokens of a request from position ``start`` on, both whole groups.

    Returns uint8 [count // 4, 16], a row for each group, and uint8 [4, 8], which saves the last group
    for the batch that follows. The state holds two pages of a group, page (group & 1) of group number
    ``group``; a batch's first group takes the group before it from there.
    """
    _check_ragged("pool_plans", count)
    last = torch.arange(RATIO - 1, count, RATIO, device=device)
    buffered = (WINDOW - 1 - last).clamp(min=0)
    group = (start + last) // RATIO
    columns = [start + last + 1, last | buffered << 16, (group - 1).clamp(min=0) & 1, group & 1]
    saved = torch.arange(count - RATIO, count, device=device)
    position = start + saved
    slot = (position // RATIO & 1) * RATIO + position % RATIO
    return _bytes(torch.stack(columns, dim=1)), _bytes(torch.stack([saved, slot], dim=1))


def padded_scores(scores: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``scores`` float32 [rows, n] and ``lengths`` int32 [rows] in the form that top-k v2 takes.

    Rows become a multiple of 4 numbers long, since they are read 16 bytes at a time. A single row gets
    an empty one beside it: the row pitch of one row is lost where DLPack counts it as 1.
    """
    rows, width = scores.shape
    padded = scores.new_zeros(max(rows, 2), max(width + -width % 4, 4))
    padded[:rows, :width] = scores
    lengths = torch.cat([lengths, lengths.new_zeros(padded.shape[0] - rows)])
    return padded, lengths


def _check_ragged(function: str, count: int) -> None:
    if count > MOST_RAGGED:
        raise ValueError(f"`{function}` should get at most {MOST_RAGGED} rows, got {count}")


def _bytes(plan: torch.Tensor) -> torch.Tensor:
    return plan.to(torch.int32).contiguous().view(torch.uint8)

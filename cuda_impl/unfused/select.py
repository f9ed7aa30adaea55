"""Top-k by a stable sort of whole rows."""

from __future__ import annotations

import torch

from dsa_crosscheck.reference.conventions import PADDING_VALUES, Conventions


def select_rows(scores: torch.Tensor, lengths: torch.Tensor, topk: int, conventions: Conventions) -> torch.Tensor:
    """Indices of the ``topk`` best of the first ``lengths[row]`` scores, int32 [rows, topk].

    ``scores`` float32 [rows, n]. -0.0 equals +0.0; NaN of either sign ranks below -inf or above +inf
    (``topk_nan``); equal scores go to the lower or the higher index (``topk_ties``); a row of at most
    ``topk`` scores selects them all, and the rest is padding (``topk_padding``). Order ``any`` is
    index order. Raises ``ValueError`` for topk < 1 or a length outside [0, n].
    """
    columns = scores.shape[1]
    if topk < 1:
        raise ValueError(f"`select_rows(topk=...)` should be at least 1, got {topk}")
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= columns:
        raise ValueError(
            f"`select_rows(lengths=...)` should be in [0, {columns}], got {int(lengths.min())} to {int(lengths.max())}"
        )
    return sorted_rows(scores, lengths, topk, conventions)


def sorted_rows(scores: torch.Tensor, lengths: torch.Tensor, topk: int, conventions: Conventions) -> torch.Tensor:
    """``select_rows`` of arguments that are known to be right: no value is read by the host."""
    columns = scores.shape[1]
    index = torch.arange(columns, device=scores.device)
    high = conventions.topk_ties == "high-index"
    # Sort keys from the least to the most significant; each sort is stable. The most significant
    # puts what is past the length last, wherever its bytes would rank.
    order = (index.flip(0) if high else index).expand(scores.shape).contiguous()
    order = _stable(order, -_comparable(scores))
    nan_rank = scores.isnan().int() * (-1 if conventions.topk_nan == "first" else 1)
    order = _stable(order, nan_rank)
    order = _stable(order, (index >= lengths.unsqueeze(1)).int())

    kept = order[:, :topk]
    counts = lengths.clamp(max=topk).unsqueeze(1)
    place = torch.arange(topk, device=scores.device)
    if conventions.topk_order != "score":
        # Past a short row's end `kept` holds invisible columns, which are larger than visible ones.
        kept = kept.sort(dim=1).values
    kept = torch.nn.functional.pad(kept, (0, topk - kept.shape[1]))
    value = PADDING_VALUES[conventions.topk_padding]
    padding = lengths.unsqueeze(1) + (place - counts) if value is None else torch.full_like(kept, value)
    return torch.where(place < counts, kept, padding).to(torch.int32)


def _comparable(scores: torch.Tensor) -> torch.Tensor:
    # NaN is ranked by a key of its own. Adding zero makes -0.0 the same number as +0.0.
    return torch.where(scores.isnan(), 0.0, scores) + 0.0


def _stable(order: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """``order`` [rows, n] of columns, sorted by ``key`` [rows, n] of the column; ties keep their order."""
    return order.gather(1, key.gather(1, order).argsort(dim=1, stable=True))

"""Exact deterministic top-k of score rows."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.cuda_impl.ops.runtime import kernels_for

MAX_K = 2048
"""Largest k; a selection row of it is 8 KiB."""


def topk(scores: torch.Tensor, lengths: torch.Tensor, k: int) -> torch.Tensor:
    """Indices of the ``k`` largest of the first ``lengths[row]`` scores, int32 [rows, k], ascending.

    ``scores`` float32 [rows, n], ``lengths`` int32 [rows]. Rows are padded with -1 at the end. A row
    of at most ``k`` scores selects 0 .. length-1 without reading them; length 0 is all padding. Equal
    scores go to the lowest index; -0.0 equals +0.0; NaN of either sign ranks below -inf, and is still
    selected when nothing else is left. The result is the same on every run.

    Raises ``ValueError`` naming the argument: another dtype, shape or device, not contiguous, k
    outside [1, 2048], or a length outside [0, n].
    """
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise ValueError(f"`topk(k=...)` should be an integer in [1, {MAX_K}], got {k!r}")
    sizes = check_tensors(
        "topk", scores=(scores, torch.float32, ("rows", "n")), lengths=(lengths, torch.int32, ("rows",))
    )
    check_range("topk", "lengths", lengths, 0, sizes["n"] + 1)
    selected = lengths.new_empty(sizes["rows"], k)
    kernels = kernels_for(scores.device)
    blocks = kernels.topk_blocks(scores)
    workspace = lengths.new_empty(kernels.topk_workspace(sizes["rows"], sizes["n"], k, blocks))
    kernels.topk(scores, lengths, workspace, selected, blocks)
    return selected

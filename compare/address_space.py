"""Caches whose pages lie so far apart that byte offsets need more than 32 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.diagnosis.facts import exact_facts
from dsa_crosscheck.compare.diagnosis.grouping import find_groups
from dsa_crosscheck.compare.repeatability.scorer_batch import ScorerBatch
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.scores import judge_scores
from dsa_crosscheck.compare.verdict import Verdict

INT32_END = 2**31


@dataclass(frozen=True)
class FarPages:
    """Scores of pages at a wide stride: the static ``warning`` (empty when 32 bits do), the line, and
    sentences on where and what its errors are."""

    warning: str
    result: StageResult
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Of the scores; the warning alone is no fault."""
        return self.result.verdict

    def __str__(self) -> str:
        """One line a statement."""
        line = f"scores: {self.verdict.value}" + (f" - {self.result.note}" if self.result.note else "")
        return "\n".join([*([self.warning] if self.warning else []), line, *self.notes])


def offset_warning(pages: np.ndarray, stride: int) -> str:
    """What the largest of page * ``stride`` (bytes) over ``pages`` (int, negative = unset) needs.

    Empty when every offset fits a signed 32-bit integer. ``ValueError`` for a stride below 1.
    """
    if stride < 1:
        raise ValueError(f"`offset_warning(stride=...)` should be at least 1, got {stride}")
    largest = int(pages.max(initial=-1)) * stride
    if largest < INT32_END:
        return ""
    first = -(-INT32_END // stride)
    return (
        f"largest offset {largest:,} needs 64-bit: page {largest // stride:,} x stride {stride:,}; "
        f"32-bit products wrap from page {first:,} on"
    )


def far_view(cache: np.ndarray, pages: np.ndarray, stride: int) -> torch.Tensor:
    """``cache`` uint8 [n, page_bytes] as a view whose page starts are ``stride`` bytes apart.

    Only ``pages`` (int) are copied; the rest of the address space is never touched and so costs no
    memory. ``ValueError`` for a stride shorter than a page.
    """
    count, page_bytes = cache.shape
    if stride < page_bytes:
        raise ValueError(f"`far_view(stride=...)` should be at least {page_bytes} (a page), got {stride}")
    # numpy's zeros come from calloc: pages of memory appear when they are first written.
    space = torch.from_numpy(np.zeros((count - 1) * stride + page_bytes, np.uint8))
    view = space.as_strided((count, page_bytes), (stride, 1))
    for page in np.unique(pages[pages >= 0]).tolist():
        view[page] = torch.from_numpy(cache[page].copy())
    return view


def check_far_pages(candidate: Any, setup: Setup, stride: int) -> FarPages:
    """The candidate's scores of the setup's cache when its pages lie ``stride`` bytes apart.

    ``candidate.score`` gets the cache as a non-contiguous tensor. Errors are grouped by physical page.
    ``CandidateFault`` as ``call`` and ``expect``.
    """
    batch = ScorerBatch.of(setup)
    table = setup.inputs.block_table
    assert isinstance(batch.cache, np.ndarray)
    got = replace(batch, cache=far_view(batch.cache, table, stride)).scores(candidate)
    (result,) = judge_scores((got,), setup)
    evidence = Evidence({"score": (got,)}, (result,))
    notes = [*(group.sentence for group in find_groups(result, setup)), *exact_facts(result, evidence, setup)]
    return FarPages(offset_warning(table, stride), result, tuple(notes))

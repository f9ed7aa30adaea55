"""DeepGEMM's fp8 paged logits (package ``sgl-deep-gemm``) on the same bytes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsa_crosscheck.compare.candidates.deepgemm_package import Call, load_package
from dsa_crosscheck.compare.device.batches import ScoreBatch
from dsa_crosscheck.compare.device.sizes import HEAD_DIM, HEADS, PAGE

STAGES = {"score": ("fp8",)}
OVERLAP: dict[str, Call] = {"get_pdl": ((), ()), "set_pdl": (("on",), ())}
"""The package's switch of programmatic dependent launch, which is off as it comes."""


def score(batch: ScoreBatch) -> Callable[[], object]:
    """``fp8_paged_mqa_logits``, its schedule made beforehand and its launch overlapping with the call before, as ours.

    It allocates its own result. A package that can't be told to overlap would be at a disadvantage: it is refused as
    one without the functions.
    """
    library = load_package(OVERLAP)
    s = batch.shape
    context = batch.lengths.view(s.requests, s.next_n)
    plan = library.get_paged_mqa_logits_metadata(context, PAGE, library.get_num_sms())
    query = batch.codes.view(torch.float8_e4m3fn).view(s.requests, s.next_n, HEADS, HEAD_DIM)
    cache = batch.cache.view(-1, PAGE, 1, HEAD_DIM + 4)

    def launch() -> None:
        before = library.get_pdl()
        library.set_pdl(True)
        try:
            batch.scores = library.fp8_paged_mqa_logits(
                query, cache, batch.weights, context, batch.block_table, plan, s.keys, clean_logits=False
            )
        finally:
            library.set_pdl(before)

    return launch

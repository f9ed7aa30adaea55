"""Candidate ``deepgemm``: the fp8 paged logits of the installed package ``sgl-deep-gemm``, on a GPU."""

from __future__ import annotations

import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.deepgemm_package import load_package, provider
from dsa_crosscheck.reference.conventions import Conventions, get_field
from dsa_crosscheck.reference.presets import PRESETS

PAGE, HEAD_DIM, HEADS = 64, 128, (32, 64)
RECORD_BYTES = HEAD_DIM + 4

SEEN: dict[str, tuple[object, ...]] = {
    "key.format": ("fp8-e4m3fn",),
    "key.scale": ("fp32", "power-of-two"),
    "query.format": ("fp8-e4m3fn",),
    "query_scale_in": ("weights", None),
    "relu": (True,),
    "score_rounding": ("none",),
    "page_order": ("values-then-scales",),
}
"""The conventions that a scorer meets, and what this one does; the others are for stages it does not have."""

ROWS_A_CALL = 4096
"""The package plans a call in shared memory, which grows with its rows and is compiled for their number."""


class DeepGemm:
    """The scorer alone, under the conventions of ``deepgemm-fp8`` or any whose scores are the same formula.

    ``accumulator``: it multiplies fp8 codes in the matrix unit, which keeps fewer bits than float32.
    ``package``: who provides the module that is called.

    Raises ``Unsupported`` naming the first field that it does not follow, without the package, without a
    GPU that the package has a kernel for, or where its functions are not those that are called here.
    """

    name = "deepgemm"
    device = "cuda"
    accumulator = "tensor-core-fp8"

    def __init__(self, conventions: Conventions | None) -> None:
        self.conventions = conventions or PRESETS["deepgemm-fp8"].conventions
        for field, values in SEEN.items():
            got = get_field(self.conventions, field)
            if got not in values:
                wanted = " or ".join(map(repr, values))
                raise Unsupported(f"candidate 'deepgemm' implements only {field}={wanted}, got {got!r}")
        self._library = load_package()
        self.package = provider(self._library)

    def score(
        self,
        codes: torch.Tensor,
        weights: torch.Tensor,
        cache: torch.Tensor,
        block_table: torch.Tensor,
        request_of_row: torch.Tensor,
        lengths: torch.Tensor,
    ) -> torch.Tensor:
        """See ``Candidate``; -inf in rows of length 0, anything past a longer row's length.

        Every row is a request of its own with one query and a copy of its line of the block table, so
        rows may come in any order and number. The package is given no row without keys: its planner
        expects some. ``Unsupported`` for other sizes than pages of 64 keys and 32 or 64 heads of 128.
        """
        rows, heads, width = codes.shape
        if width != HEAD_DIM:
            raise Unsupported(f"candidate 'deepgemm' scores codes of {HEAD_DIM} bytes a head, got {width}")
        if heads not in HEADS:
            raise Unsupported(f"candidate 'deepgemm' scores {HEADS[0]} or {HEADS[1]} heads, got {heads}")
        if cache.shape[1] != PAGE * RECORD_BYTES:
            raise Unsupported(
                f"candidate 'deepgemm' reads pages of {PAGE} keys, {PAGE * RECORD_BYTES} bytes, got {cache.shape[1]}"
            )
        longest = int(lengths.max()) if rows else 0
        scores = weights.new_full((rows, longest), -torch.inf)
        for some in torch.nonzero(lengths > 0)[:, 0].split(ROWS_A_CALL):
            if some.numel():
                table = block_table[request_of_row[some].long()]
                scores[some] = self._logits(codes[some], weights[some], cache, table, lengths[some], longest)
        return scores

    def _logits(
        self,
        codes: torch.Tensor,
        weights: torch.Tensor,
        cache: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        longest: int,
    ) -> torch.Tensor:
        """float32 [rows, longest] of rows that all see a key, line i of ``table`` for row i."""
        context = lengths[:, None]
        plan = self._library.get_paged_mqa_logits_metadata(context, PAGE, self._library.get_num_sms())
        logits: torch.Tensor = self._library.fp8_paged_mqa_logits(
            codes.view(torch.float8_e4m3fn)[:, None],
            cache.view(-1, PAGE, 1, RECORD_BYTES),
            weights,
            context,
            table,
            plan,
            longest,
            clean_logits=False,
        )
        return logits

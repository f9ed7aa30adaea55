"""Read paths of serving frameworks, from the tensors that their published code names.

None of them runs here, so what they hold at once is not known: their peak adds up every tensor of a pass,
which is what they hold if none is freed before the pass returns.

Source: sgl-project/sglang, the files and commits given with each path.
"""

from __future__ import annotations

from collections.abc import Callable

from dsa_crosscheck.compare.studies.read_path import ReadPath, ReadSizes, Request

FP8 = ("fp8-fp32-scale",)
BASIS = "published source, not run"
V4 = "sglang attention/dsv4/indexer.py @00509fc3, "
V32 = "sglang attention/dsa/torch_paged_mqa_logits.py @6d066706"
TRITON = "sglang attention/dsv4/triton_fp8_paged_mqa_logits.py @c5eea83b"
SM120_ROWS = 1024
TRITON_KEY_BYTES = 256 << 20
DEEPGEMM_ALIGN = 256


def deepgemm(s: ReadSizes) -> list[Request]:
    """Streaming, float32 logits with rows padded to a multiple of 256 keys."""
    width = -(-s.keys // DEEPGEMM_ALIGN) * DEEPGEMM_ALIGN
    return [Request("logits", "logits", (s.rows, width), 4, "DeepGEMM fp8_paged_mqa_logits")]


def _torch_pass(
    s: ReadSizes, rows: int, source: str, key_bytes: int, product_bytes: int, keep_product: bool
) -> list[Request]:
    """One pass over ``rows`` rows: gathered bytes, decoded keys, products of each head, their weighted copy."""
    by_head = (rows, s.padded, s.geometry.heads)
    page = s.geometry.page_size * s.record
    weighted = [Request("weighted product", "head-axis", by_head, 4, source)] if keep_product else []
    return [
        Request("gathered pages", "gather", (rows, s.pages, page), 1, source),
        Request("gathered keys", "gather", (rows, s.padded, s.geometry.head_dim), key_bytes, source),
        Request("head product", "head-axis", by_head, product_bytes, source),
        *weighted,
    ]


def sglang_torch(s: ReadSizes) -> list[Request]:
    """``fp8_paged_mqa_logits_torch``: bfloat16 keys and products, float32 once weighted; no chunks."""
    source = V4 + "fp8_paged_mqa_logits_torch"
    return [
        *_torch_pass(s, s.rows, source, 2, 2, keep_product=True),
        Request("scores", "logits", (s.rows, s.padded), 4, source),
    ]


def sglang_torch_sm120(s: ReadSizes) -> list[Request]:
    """The same in chunks of 1,024 rows; the chunks' scores are concatenated at the end."""
    source = V4 + "fp8_paged_mqa_logits_torch_sm120"
    one = [_until(r, "scores of the chunks") for r in _torch_pass(s, min(s.rows, SM120_ROWS), source, 2, 2, True)]
    scores = (s.rows, s.padded)
    return [
        *one,
        Request("scores of the chunks", "logits", scores, 4, source),
        Request("scores", "logits", scores, 4, source),
    ]


def sglang_torch_v32(s: ReadSizes) -> list[Request]:
    """V3.2's torch fallback: everything float32."""
    return [
        *_torch_pass(s, s.rows, V32, 4, 4, keep_product=False),
        Request("scores", "logits", (s.rows, s.padded), 4, V32),
    ]


def sglang_triton(s: ReadSizes) -> list[Request]:
    """Chunks of rows whose float32 keys take at most 256 MiB, with the products of the heads on top."""
    dim = s.geometry.head_dim
    rows = max(1, min(s.rows, TRITON_KEY_BYTES // (s.padded * dim * 4)))
    return [
        Request("scores", "logits", (s.rows, s.padded), 4, TRITON),
        Request("gathered keys", "gather", (rows, s.padded, dim), 4, TRITON),
        Request("head product", "head-axis", (rows, s.padded, s.geometry.heads), 4, TRITON),
    ]


def _until(request: Request, last: str) -> Request:
    return Request(request.name, request.kind, request.shape, request.item_bytes, request.source, last)


def _path(name: str, what: str, requests: Callable[[ReadSizes], list[Request]]) -> ReadPath:
    return ReadPath(name, what, FP8, requests, BASIS)


FRAMEWORKS = (
    _path("deepgemm", "streaming, rows padded to 256 keys", deepgemm),
    _path("sglang-torch", "torch fallback, no chunks", sglang_torch),
    _path("sglang-torch-sm120", "torch fallback, chunks of 1,024 rows", sglang_torch_sm120),
    _path("sglang-torch-v32", "torch fallback of V3.2, float32", sglang_torch_v32),
    _path("sglang-triton", "chunks of 256 MiB of keys", sglang_triton),
)
"""Modelled paths."""

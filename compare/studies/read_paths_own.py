"""Read paths whose code is at hand: the kernels, the unfused path, the reference, transformers' scorer.

The requests are those of the code line by line, less transients that are small beside what is held then.
"""

from __future__ import annotations

from dsa_crosscheck.compare.studies.read_path import ReadPath, ReadSizes, Request, source_line
from dsa_crosscheck.cuda_impl.ops.score import paged_scores
from dsa_crosscheck.cuda_impl.unfused.cache import gather_records
from dsa_crosscheck.cuda_impl.unfused.quantise import apply_scales, dequantise, scales_from_bytes
from dsa_crosscheck.cuda_impl.unfused.score import score_dense
from dsa_crosscheck.reference import score as reference_score

STORED_FORMATS = ("bf16", "fp8-fp32-scale", "fp4-even")
"""One format of each record size."""


def streaming(s: ReadSizes) -> list[Request]:
    """The kernels write the scores and nothing else."""
    line = source_line(paged_scores, "scores = weights.new_empty(")
    return [Request("scores", "logits", (s.rows, s.keys), 4, line)]


def unfused(s: ReadSizes) -> list[Request]:
    """Every row gathers all its keys, decodes them to float32 and keeps the head axis."""
    gather = source_line(gather_records, "records = cache[pages]")
    page = s.geometry.page_size
    return [
        Request("pages of every row", "gather", (s.rows, s.pages, page, s.record), 1, gather, "records"),
        Request("records", "gather", (s.rows, s.pages, page, s.record), 1, gather),
        *_key_scales(s),
        *_queries(s),
        *_elements(s),
        *_head_sum(s),
    ]


def _key_scales(s: ReadSizes) -> list[Request]:
    groups = s.codec.groups(s.geometry.head_dim)
    if not groups:
        return []
    statement = "torch.where(stored == 255" if s.codec.scale_bytes == 1 else "return stored.contiguous()"
    return [Request("key scales", "gather", (s.rows, s.padded, groups), 4, source_line(scales_from_bytes, statement))]


def _queries(s: ReadSizes) -> list[Request]:
    shape = (s.rows, s.geometry.heads, s.geometry.head_dim)
    return [Request("queries", "other", shape, 4, source_line(score_dense, "queries = apply_scales("))]


def _elements(s: ReadSizes) -> list[Request]:
    """Decoding of the gathered codes; the copies are of slices, which aren't contiguous."""
    dim = s.geometry.head_dim
    shape = (s.rows, s.keys, dim)
    sliced = s.keys != s.padded and s.rows > 1
    bits = s.codec.spec.bits
    if bits == 32:
        line = source_line(dequantise, "return values.contiguous().view(torch.float32)")
        return [Request("keys", "gather", shape, 4, line)] if sliced else []
    if bits == 16:
        line = source_line(dequantise, "view(torch.bfloat16)")
        copy = [Request("key codes", "gather", shape, 2, line, "keys")] if sliced else []
        return [*copy, Request("keys", "gather", shape, 4, line)]
    if bits == 8:
        line = source_line(dequantise, "view(_FP8_DTYPES")
        return [Request("key codes", "gather", shape, 1, line, "keys"), Request("keys", "gather", shape, 4, line)]
    halves = (s.rows, s.keys, dim // 2)
    split = source_line(dequantise, "low, high = values")
    look_up = source_line(dequantise, "[codes.long()]")
    scaled = source_line(apply_scales, "elements.unflatten(")
    return [
        Request("low nibbles", "gather", halves, 1, split, "unscaled keys"),
        Request("high nibbles", "gather", halves, 1, split, "unscaled keys"),
        Request("nibbles", "gather", shape, 1, source_line(dequantise, "codes = torch.stack("), "unscaled keys"),
        Request("nibbles as int64 index", "gather", shape, 8, look_up, "unscaled keys"),
        Request("unscaled keys", "gather", shape, 4, look_up, "keys"),
        Request("keys", "gather", shape, 4, scaled),
    ]


def _head_sum(s: ReadSizes) -> list[Request]:
    by_head, scores = (s.rows, s.geometry.heads, s.keys), (s.rows, s.keys)
    product = source_line(score_dense, "product = queries @")
    total = source_line(score_dense, "weighted.sum(dim=1) * factor")
    masked = source_line(score_dense, "return total.masked_fill")
    return [
        Request("head product", "head-axis", by_head, 4, product, "relu of it"),
        Request("relu of it", "head-axis", by_head, 4, source_line(score_dense, "product = torch.relu(")),
        Request("weighted product", "head-axis", by_head, 4, source_line(score_dense, "weighted = product *")),
        Request("head sum", "logits", scores, 4, total, "total"),
        Request("total", "logits", scores, 4, total),
        Request("mask", "logits", scores, 1, masked),
        Request("scores", "logits", scores, 4, masked),
    ]


def reference(s: ReadSizes) -> list[Request]:
    """Float64 scores and magnitudes in numpy; the compiled block keeps its head axis for a few keys."""
    rows, keys = reference_score.ROW_BLOCK, reference_score.KEY_BLOCK
    block = (rows, s.geometry.heads, keys)
    function = reference_score._score_block.__wrapped__  # type: ignore[attr-defined]
    values = source_line(reference_score.score, "values = np.full(")
    magnitude = source_line(reference_score.score, "magnitude = np.zeros(")
    return [
        Request("values", "logits", (s.rows, s.keys), 8, values),
        Request("magnitude", "logits", (s.rows, s.keys), 8, magnitude),
        Request("block product", "head-axis", block, 8, source_line(function, "product = (query.reshape")),
        Request("relu of it", "head-axis", block, 8, source_line(function, "product = jnp.maximum(")),
        Request(
            "block scores", "logits", (2, rows, keys), 8, source_line(function, "values, magnitude = jnp.moveaxis")
        ),
    ]


def transformers_scorer(s: ReadSizes) -> list[Request]:
    """``DeepseekV4IndexerScorer`` on bfloat16 queries and keys: one contiguous copy of the keys."""
    of = "transformers DeepseekV4IndexerScorer.forward: "
    heads, dim = s.geometry.heads, s.geometry.head_dim
    by_head = (s.rows, heads, s.keys)
    return [
        Request("queries", "other", (s.rows, heads, dim), 4, of + "q.float()", "head product"),
        Request("keys", "gather", (s.keys, dim), 4, of + "compressed_kv.transpose(-1, -2).float()", "head product"),
        Request("head product", "head-axis", by_head, 4, of + "torch.matmul(q, keys)", "scaled"),
        Request("relu of it", "head-axis", by_head, 4, of + "F.relu(scores)", "scaled"),
        Request("scaled", "head-axis", by_head, 4, of + "F.relu(scores) * self.softmax_scale"),
        Request("weighted product", "head-axis", by_head, 4, of + "scores * weights"),
        Request("scores", "logits", (s.rows, s.keys), 4, of + "sum(dim=2)"),
    ]


OWN = (
    ReadPath("streaming", "kernels: no head axis, no gather", STORED_FORMATS, streaming, "code"),
    ReadPath("unfused", "torch, gathers per row", STORED_FORMATS, unfused, "code"),
    ReadPath("reference", "float64 JAX in blocks", STORED_FORMATS, reference, "code"),
    ReadPath("transformers", "scorer of transformers >= 5.24", ("bf16",), transformers_scorer, "library code"),
)
"""Paths that can be measured, by ``memory_measured``."""

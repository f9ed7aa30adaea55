"""A correct implementation in float32 that does everything in a random admissible way."""

from __future__ import annotations

import numpy as np
import torch

from dsa_crosscheck.compare.candidates.unfused import head_dim_of
from dsa_crosscheck.compare.mutants.random_sums import RandomSums
from dsa_crosscheck.reference.cache import key_layout, read_records, request_slots, write_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import PADDING_VALUES, Conventions
from dsa_crosscheck.reference.exact import round_bf16
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.hadamard import row_order
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.quantise import Quantised, code_values, quantise
from dsa_crosscheck.reference.record import pack_record, unpack_record

Array = np.ndarray
Tensor = torch.Tensor


class RandomFloat32:
    """Float32 arithmetic under ``conventions``; ``seed`` draws orders, trees, fusing and ties.

    Where the conventions leave a choice (which of equal scores, output order, one rounding more),
    it is drawn too. Two calls differ, so it's not repeatable.
    """

    name = "float32, random orders"

    def __init__(self, conventions: Conventions, seed: int) -> None:
        self.conventions = conventions
        self._generator = np.random.default_rng(seed)
        self._sums = RandomSums(self._generator)

    def pool(self, kv_score: Tensor, position_bias: Tensor) -> Tensor:
        """See ``Candidate``."""
        bias = position_bias.numpy()
        ratio, columns = bias.shape
        groups = kv_score.shape[0] // ratio
        windows = kv_score.numpy()[: groups * ratio].reshape(groups, ratio, 2, 2, columns // 2)
        values, logits = windows[:, :, 0], windows[:, :, 1] + bias.reshape(ratio, 2, columns // 2)
        before, before_logits = np.zeros_like(values[:, :, 0]), np.full_like(values[:, :, 0], -np.inf)
        before[1:], before_logits[1:] = values[:-1, :, 0], logits[:-1, :, 0]
        values = np.moveaxis(np.concatenate([before, values[:, :, 1]], axis=1), 1, -1)
        logits = np.moveaxis(np.concatenate([before_logits, logits[:, :, 1]], axis=1), 1, -1)
        share = np.exp(logits - logits.max(axis=-1, keepdims=True))
        total = self._sums.total(share)
        if self._sums.coin():
            return torch.from_numpy(self._sums.dot(share, values) / total)
        return torch.from_numpy(self._sums.dot(share / total[..., None], values))

    def store_keys(
        self,
        pooled: Tensor,
        norm_weight: Tensor,
        rope_table: Tensor,
        positions: Tensor,
        slots: Tensor,
        cache: Tensor,
    ) -> None:
        """See ``Candidate``."""
        c = self.conventions
        dim = pooled.shape[1]
        keys = self._point("normed", self._norm(self._point("pooled", pooled.numpy()), norm_weight.numpy()))
        keys = self._point("key-roped", self._rope(keys, rope_table.numpy()[positions.numpy()]))
        keys = self._hadamard(keys) if c.hadamard_key else keys
        keys = self._point("key-rotated", keys[:, lane_permutation(c.lane_order_key, dim)])
        page_size = cache.shape[1] // c.key.record_bytes(dim)
        layout = key_layout(c.key, Geometry(head_dim=dim, page_size=page_size), c.page_order)
        write_records(cache.numpy(), layout, pack_record(self._quantise(keys, c.key), c.key), slots.numpy())

    def encode_query(self, query: Tensor, gate: Tensor, rope_table: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Candidate``."""
        c = self.conventions
        dim, heads = query.shape[2], query.shape[1]
        turned = self._rope(query.numpy(), rope_table.numpy()[positions.numpy()][:, None])
        turned = self._point("query-roped", turned)
        turned = self._hadamard(turned) if c.hadamard_query else turned
        turned = self._point("query-rotated", turned[..., lane_permutation(c.lane_order_query, dim)])
        quantised = self._quantise(turned, c.query)
        folded = c.query_scale_in == "weights"
        codes = pack_record(quantised, c.query, with_scales=not folded)
        weights = gate.numpy()
        if c.weight_scale != "none":
            factors = np.float32(dim**-0.5), np.float32(heads**-0.5)
            weights = weights * factors[0] * factors[1] if self._sums.coin() else weights * (factors[0] * factors[1])
        if c.weight_dtype == "bf16":
            weights = round_bf16(weights).astype(np.float32)
        if folded:
            weights = weights * quantised.scales[..., 0]
        return torch.from_numpy(np.ascontiguousarray(codes)), torch.from_numpy(weights)

    def score(
        self,
        codes: Tensor,
        weights: Tensor,
        cache: Tensor,
        block_table: Tensor,
        request_of_row: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        """See ``Candidate``."""
        c = self.conventions
        dim = head_dim_of(codes.shape[2], c)
        page_size = cache.shape[1] // c.key.record_bytes(dim)
        layout = key_layout(c.key, Geometry(head_dim=dim, rope_dim=2, page_size=page_size), c.page_order)
        query = _values(unpack_record(codes.numpy(), c.query, dim), c.query)
        out = np.full((lengths.shape[0], int(lengths.max()) if lengths.numel() else 0), -np.inf, np.float32)
        for row, (request, length) in enumerate(zip(request_of_row.tolist(), lengths.tolist(), strict=True)):
            slots = request_slots(block_table.numpy(), request, np.arange(length), page_size)
            keys = unpack_record(read_records(cache.numpy(), layout, slots), c.key, dim)
            out[row, :length] = self._score_row(query[row], weights.numpy()[row], keys)
        return torch.from_numpy(out)

    def select(self, scores: Tensor, lengths: Tensor, topk: int) -> Tensor:
        """See ``Candidate``. Equal scores win at random; an order that isn't declared is random."""
        c = self.conventions
        chosen = np.empty((scores.shape[0], topk), np.int32)
        pad = PADDING_VALUES[c.topk_padding]
        for row, length in enumerate(lengths.tolist()):
            best = np.lexsort((self._generator.random(length), -scores.numpy()[row, :length]))[:topk]
            if c.topk_order == "index":
                best = np.sort(best)
            elif c.topk_order == "any":
                best = self._generator.permutation(best)
            chosen[row, : best.size] = best
            chosen[row, best.size :] = np.arange(length, length + topk - best.size) if pad is None else pad
        return torch.from_numpy(chosen)

    def _norm(self, x: Array, parameters: Array) -> Array:
        weight, bias = parameters if parameters.ndim == 2 else (parameters, None)
        n = np.float32(x.shape[-1])
        if self.conventions.norm == "layer":
            x = x - (self._sums.total(x) / n)[:, None]
        mean_square = self._sums.dot(x, x) / n + np.float32(self.conventions.norm_eps)
        scale = (np.float32(1.0) / np.sqrt(mean_square))[:, None]
        scaled = x * scale * weight if self._sums.coin() else x * (scale * weight)
        return scaled if bias is None else scaled + bias

    def _rope(self, x: Array, rows: Array) -> Array:
        """``rows``: cosines and sines, [..., rope_dim], broadcast against ``x``'s leading axes."""
        c, width = self.conventions, rows.shape[-1]
        cos, sin = rows[..., 0::2], rows[..., 1::2]
        out = x.copy()
        turned = out[..., :width] if c.rope_dims == "first" else out[..., -width:]
        half = width // 2
        interleaved = c.rope_pairing == "interleaved"
        first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, half), slice(half, None))
        a, b = turned[..., first].copy(), turned[..., second].copy()
        turned[..., first] = self._sums.product_sum(a, cos, -b, sin)
        turned[..., second] = self._sums.product_sum(a, sin, b, cos)
        return out

    def _hadamard(self, x: Array) -> Array:
        """Butterflies in a random order of strides, the factor first or last."""
        c, n = self.conventions, x.shape[-1]
        assert c.hadamard_order is not None
        factor = np.float32(n**-0.5 if c.hadamard_scale == "orthonormal" else 1.0)
        early = self._sums.coin()
        out = x * factor if early else x
        for bit in self._generator.permutation(n.bit_length() - 1):
            pairs = out.reshape(*x.shape[:-1], n >> (int(bit) + 1), 2, 1 << int(bit))
            low, high = pairs[..., 0, :], pairs[..., 1, :]
            out = np.stack([low + high, low - high], axis=-2).reshape(x.shape)
        out = out[..., row_order(n, c.hadamard_order)]
        return out if early else out * factor

    def _quantise(self, x: Array, codec: Codec) -> Quantised:
        for field, choices in (("apply", ("reciprocal", "divide")), ("scale_from", ("divide", "reciprocal"))):
            if getattr(codec, field) is not None:
                codec = codec.with_field(field, choices[int(self._sums.coin())])
        return quantise(x, codec)

    def _score_row(self, query: Array, weights: Array, keys: Quantised) -> Array:
        c = self.conventions
        chain = c.score_rounding == "bf16-chain"
        # One scale a key may also multiply the head sum; a rounded product must have it already.
        late = keys.scales.shape[-1] == 1 and not chain and self._sums.coin()
        values = code_values(keys.codes, c.key.spec).astype(np.float32) if late else _values(keys, c.key)
        product = self._sums.dot(values[:, None], query[None])
        if chain:
            product = _bf16(product)
        if c.relu:
            product = np.maximum(product, np.float32(0.0))
        if chain:
            return _bf16(self._sums.total(_bf16(product * weights)))
        scores = self._sums.dot(product, weights[None])
        scores = scores * keys.scales[:, 0] if late else scores
        return {"none": _same, "fp16": _fp16, "bf16": _bf16}[c.score_rounding](scores)

    def _point(self, name: str, x: Array) -> Array:
        return _bf16(x) if name in self.conventions.bf16_points else x


def _values(quantised: Quantised, codec: Codec) -> Array:
    """Codes times scales, rounded to float32."""
    values = code_values(quantised.codes, codec.spec).astype(np.float32)
    groups = quantised.scales.shape[-1]
    if not groups:
        return values
    return values * np.repeat(quantised.scales, values.shape[-1] // groups, axis=-1)


def _same(x: Array) -> Array:
    return x


def _fp16(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def _bf16(x: Array) -> Array:
    return round_bf16(x).astype(np.float32)

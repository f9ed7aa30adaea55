"""Where a scorer reads every element: one-hot queries against caches that spell addresses in binary."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault, call, expect
from dsa_crosscheck.compare.diagnosis.addresses import Places, describe
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised, dequantise, quantise
from dsa_crosscheck.reference.record import pack_record, unpack_record

LETTERS: dict[int, tuple[int, int]] = {4: (0x2, 0x4), 8: (0x38, 0x40), 16: (0x3F, 0x40), 32: (0x3F, 0x40)}
"""The two values of a nibble (4 bits) or byte, by the width of the format: any mixture of them is a
positive finite element, and a positive finite scale."""
PAGES = 4
TOKENS = 96
CLOSE = 1e-7


def decode_score(candidate: Any, setup: Setup) -> list[str]:
    """How the candidate finds the bytes of keys, in sentences; empty when as declared.

    Every byte of a small cache holds one of two values. In call j it is bit j of the byte's own address
    that decides, so that the score of a one-hot query, an element times its scale, tells bit j of the
    addresses that went into it. One more call, with all bytes alike, tells the factor beside.
    """
    try:
        return _decoded(_Probe(candidate, setup), setup)
    except CandidateFault as fault:
        return [f"the address-coded probe can't be scored: {fault}"]


def _decoded(probe: _Probe, setup: Setup) -> list[str]:
    """What the scores of ``probe`` say; ``CandidateFault`` when one of its calls gives none."""
    c, geometry = setup.conventions, setup.inputs.geometry
    layout = setup.layout
    per_byte = 2 if c.key.spec.bits == 4 else 1
    units = PAGES * layout.page_bytes * per_byte
    table = _readings(c.key, geometry.head_dim)
    plain = probe.scores(_cache(np.zeros(units, np.int64), layout.page_bytes, c.key))
    factor = plain.reshape(-1)[0] / table.values[0]
    if not np.isfinite(factor) or factor == 0 or (np.abs(plain / (factor * table.values[0]) - 1) > CLOSE).any():
        return ["the scorer does not multiply one element by one scale: its reads can't be decoded"]
    value = np.zeros((probe.tokens, geometry.head_dim, table.value_units), np.int64)
    scale = np.zeros((probe.tokens, geometry.head_dim, table.scale_units), np.int64)
    for bit in range(int(units - 1).bit_length()):
        address = (np.arange(units) >> bit) & 1
        reading = table.nearest(probe.scores(_cache(address, layout.page_bytes, c.key)) / factor)
        if reading is None:
            return ["the scorer does not multiply one element by one scale: its reads can't be decoded"]
        value |= reading[..., : table.value_units] << bit
        scale |= reading[..., table.value_units :] << bit
    places = Places(value.reshape(probe.tokens, -1), probe.slots, layout, c.key)
    sentences = [describe(places, "read from"), _scales_read(scale, probe, setup)]
    return [sentence for sentence in sentences if sentence]


class _Readings:
    """Score of each mixture of letters: ``bits`` [mixtures, units of an element, then of a scale]."""

    def __init__(self, codec: Codec, bits: np.ndarray, values: np.ndarray, value_units: int) -> None:
        order = np.argsort(values)
        self.bits, self.sorted, self.codec = bits[order], values[order], codec
        self.values = values
        self.value_units, self.scale_units = value_units, bits.shape[1] - value_units

    def nearest(self, scores: np.ndarray) -> np.ndarray | None:
        """Bits [tokens, head_dim, units] of scores [head_dim, tokens]; None if some score is no mixture."""
        got = scores.T
        at = np.clip(np.searchsorted(self.sorted, got), 1, self.sorted.size - 1)
        lower = np.abs(self.sorted[at - 1] - got) < np.abs(self.sorted[at] - got)
        at = np.where(lower, at - 1, at)
        with np.errstate(invalid="ignore"):
            if not (np.abs(got / self.sorted[at] - 1) <= CLOSE).all():
                return None
        return self.bits[at]


def _readings(codec: Codec, head_dim: int) -> _Readings:
    """Every mixture's score, decoded by the declared format; the first is all zeros."""
    per_element = max(1, codec.spec.bits // 8)
    scale_units = codec.scale_bytes * (2 if codec.spec.bits == 4 else 1)
    mixtures = np.array(list(product((0, 1), repeat=per_element + scale_units)), np.int64)
    low, high = LETTERS[codec.spec.bits]
    letters = np.where(mixtures == 1, high, low).astype(np.uint8)
    record = np.zeros((len(letters), codec.record_bytes(head_dim)), np.uint8)
    width = codec.value_bytes(head_dim)
    if codec.spec.bits == 4:
        record[:, :width] = letters[:, :1] * np.uint8(17)
        record[:, width:] = letters[:, 1:2] | (letters[:, 2:3] << np.uint8(4))
    else:
        record[:, :width] = np.tile(letters[:, :per_element], head_dim)
        record[:, width:] = np.tile(letters[:, per_element:], codec.groups(head_dim))
    values = dequantise(unpack_record(record, codec, head_dim), codec)[:, 0]
    return _Readings(codec, mixtures, values, per_element)


def _cache(bits: np.ndarray, page_bytes: int, codec: Codec) -> np.ndarray:
    """Pages whose units hold the low or the high letter."""
    low, high = LETTERS[codec.spec.bits]
    units = np.where(bits == 1, high, low).astype(np.uint8)
    if codec.spec.bits == 4:
        units = units[0::2] | (units[1::2] << np.uint8(4))
    return units.reshape(-1, page_bytes)


class _Probe:
    """One-hot queries, one row a dim, over ``tokens`` keys on permuted pages."""

    def __init__(self, candidate: Any, setup: Setup) -> None:
        g, c = setup.inputs.geometry, setup.conventions
        self.candidate = candidate
        self.tokens = min(TOKENS, 2 * g.page_size)
        self.table = np.array([[2, 1, -1]], np.int32)
        index = np.arange(self.tokens)
        self.slots = self.table[0, index // g.page_size].astype(np.int64) * g.page_size + index % g.page_size
        one_hot = np.zeros((g.head_dim, g.heads, g.head_dim))
        one_hot[:, 0] = np.eye(g.head_dim)
        codes = quantise(one_hot, c.query).codes
        if c.query.scale_bytes:
            ones = np.ones((*one_hot.shape[:2], c.query.groups(g.head_dim)), np.float32)
            # Stored beside a scale of one, an element of one must have the code of one.
            codes = _codes_of_one(one_hot, c.query)
            record = pack_record(Quantised(codes, ones), c.query, with_scales=c.query_scale_in == "record")
        else:
            record = pack_record(Quantised(codes, np.zeros((*one_hot.shape[:2], 0), np.float32)), c.query)
        self.codes = np.ascontiguousarray(record)
        self.weights = np.zeros((g.head_dim, g.heads), np.float32)
        self.weights[:, 0] = 1.0

    def scores(self, cache: np.ndarray) -> np.ndarray:
        """float64 [head_dim, tokens]."""
        rows = self.codes.shape[0]
        requests, lengths = np.zeros(rows, np.int32), np.full(rows, self.tokens, np.int32)
        (got,) = call(self.candidate, "score", self.codes, self.weights, cache, self.table, requests, lengths)
        return expect("score", "scores", got, (rows, self.tokens), (np.float32,)).astype(np.float64)


def _codes_of_one(one_hot: np.ndarray, codec: Codec) -> np.ndarray:
    one = int(np.flatnonzero(codec.spec.decode_table == 1.0)[0])
    return np.where(one_hot == 1.0, one, 0).astype(np.uint8)


def _scales_read(scale: np.ndarray, probe: _Probe, setup: Setup) -> str:
    """Where the scale bytes of each token's groups were read from, if not where they are declared."""
    layout, codec = setup.layout, setup.conventions.key
    if not codec.scale_bytes:
        return ""
    page, offset = np.divmod(probe.slots, layout.page_size)
    byte = page[:, None] * layout.page_bytes + layout.addresses[offset, layout.value_bytes :]
    dims = np.arange(scale.shape[1]) // (scale.shape[1] // codec.groups(scale.shape[1]))
    declared = byte.reshape(byte.shape[0], -1, codec.scale_bytes)[:, dims]
    got = scale[..., ::2] // 2 if codec.spec.bits == 4 else scale
    wrong = (got != declared).any(axis=(1, 2))
    if not wrong.any():
        return ""
    token = int(np.argmax(wrong))
    places, meant = (_bytes(at[token, 0], layout.page_bytes) for at in (got, declared))
    who = f"scales of {int(wrong.sum())} of {wrong.size} tokens"
    return f"{who} are read from other bytes: token {token}'s from {places}, not {meant}"


def _bytes(addresses: np.ndarray, page_bytes: int) -> str:
    """Bytes of one scale, as a range where they follow each other."""
    page, first = divmod(int(addresses[0]), page_bytes)
    if addresses.size == 1:
        return f"byte {first} of page {page}"
    if np.array_equal(addresses, addresses[0] + np.arange(addresses.size)):
        return f"bytes {first} to {first + addresses.size - 1} of page {page}"
    return "bytes " + ", ".join(f"{page}:{byte}" for page, byte in (divmod(int(a), page_bytes) for a in addresses))

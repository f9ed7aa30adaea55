"""The torch path against the float64 reference: every preset, and every record one field away from one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.unfused import encode_query, score, select, store_keys
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.cache import key_layout, read_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.conventions import Conventions, flips
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.keys import key_positions
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.quantise import dequantise
from dsa_crosscheck.reference.record import unpack_record
from dsa_crosscheck.reference.select import select as select_reference
from dsa_crosscheck.reference.trace import Trace

UNIT = 2.0**-24
STAGE_ROUNDINGS = 2000
"""float32 roundings between the input and the last stage before the codes, on any path: a norm and a
transform over 128 elements with every sum in the worst order, twice over."""
MOST_DIFFERENT_CODES = 0.01
"""Codes may differ where float32 noise crosses a rounding boundary: about one in ten thousand. With
any one field read wrongly the share is tens of percent, or the bytes have another length."""


@cache
def _inputs(ratio: int) -> Inputs:
    geometry = Geometry(heads=4, compress_ratio=ratio, page_size=16, topk=24)
    return build_case("gaussian", context=60 * ratio, rows=8, seed=1, geometry=geometry)


def _records() -> dict[str, tuple[Conventions, int]]:
    """Conventions by a readable name, each once."""
    found: dict[Conventions, tuple[str, int]] = {}
    for name, row in PRESETS.items():
        ratio = row.geometry.compress_ratio
        found.setdefault(row.conventions, (name, ratio))
        for path, value, record in flips(row.conventions):
            label = value if path != "bf16_points" else "+".join(sorted(record.bf16_points))
            found.setdefault(record, (f"{name}-{path}={label}", ratio))
    return {name: (record, ratio) for record, (name, ratio) in found.items()}


RECORDS = _records()


def _foldable(conventions: Conventions) -> bool:
    return conventions.query_scale_in != "weights" or conventions.query.groups(128) == 1


def _decode(records: np.ndarray, codec: Codec) -> np.ndarray:
    """Float64 elements [..., 128]; those of a record whose scale is elsewhere stay unscaled."""
    quantised = unpack_record(records, codec, 128)
    if codec.scale_bytes and quantised.scales.shape[-1] == 0:
        return codec.spec.decode_table[quantised.codes]
    return dequantise(quantised, codec)


def _assert_same_codes(got: np.ndarray, expected: np.ndarray, codec: Codec, *, bf16_before: bool) -> None:
    """Stored elements agree but for noise, and codes differ rarely.

    Noise of one element is float32 noise of the row's largest, or, where a stage before rounds to
    bfloat16, one bfloat16 step of it. On top of that a small code may differ by one step, however
    wide the step is.
    """
    decoded, reference = _decode(got, codec), _decode(expected, codec)
    top = np.abs(reference).max(axis=-1, keepdims=True)
    error = np.abs(decoded - reference)
    differs = error > STAGE_ROUNDINGS * UNIT * top
    rounded = bf16_before or codec.format != "exact"
    assert np.mean(differs) <= (MOST_DIFFERENT_CODES if rounded else 0.0)
    allowed = error <= (2.0**-7 if bf16_before or codec.format == "bf16" else STAGE_ROUNDINGS * UNIT) * top
    if codec.spec.bits <= 8:
        values = np.unique(codec.spec.decode_table[np.isfinite(codec.spec.decode_table)])
        numbers = [codec.spec.decode_table[unpack_record(x, codec, 128).codes] for x in (got, expected)]
        allowed |= np.abs(np.searchsorted(values, numbers[0]) - np.searchsorted(values, numbers[1])) <= 1
    assert allowed.all()


@pytest.mark.parametrize("name", RECORDS)
def test_every_stage_follows_the_conventions(name: str) -> None:
    c, ratio = RECORDS[name]
    inputs = _inputs(ratio)
    trace = Trace(inputs, c)
    table = torch.from_numpy(inputs.rope_table)

    norm_weight = torch.from_numpy(inputs.norm_weight)
    if c.norm == "layer":
        norm_weight = torch.stack((norm_weight, torch.from_numpy(inputs.norm_bias)))
    layout = key_layout(c.key, inputs.geometry, c.page_order)
    stored = inputs.slots >= 0
    cache = torch.zeros(inputs.pages, layout.page_bytes, dtype=torch.uint8)
    store_keys(
        torch.from_numpy(inputs.pooled),
        norm_weight,
        table,
        torch.from_numpy(key_positions(inputs.key_index, inputs.geometry, c.rope_position)),
        torch.from_numpy(inputs.slots),
        cache,
        conventions=c,
        geometry=inputs.geometry,
    )
    slots = inputs.slots[stored]
    got = read_records(cache.numpy(), layout, slots)
    _assert_same_codes(got, trace.records[stored], c.key, bf16_before=bool(c.bf16_points))
    unused = np.ones((inputs.pages, layout.page_bytes), bool)
    unused[(slots // layout.page_size)[:, None], layout.addresses[slots % layout.page_size]] = False
    assert not cache.numpy()[unused].any()

    query, gate, at = (torch.from_numpy(x) for x in (inputs.query, inputs.gate, inputs.query_positions))
    if not _foldable(c):
        with pytest.raises(ValueError, match="query_scale_in"):
            encode_query(query, gate, table, at, conventions=c)
        return
    codes, weights = encode_query(query, gate, table, at, conventions=c)
    assert codes.shape == trace.codes.shape
    _assert_same_codes(codes.numpy(), trace.codes, c.query, bf16_before=bool(c.bf16_points))
    np.testing.assert_allclose(weights.numpy(), trace.weights, rtol=STAGE_ROUNDINGS * UNIT)

    scores = score(
        torch.from_numpy(trace.codes),
        torch.from_numpy(trace.weights.astype(np.float32)),
        torch.from_numpy(trace.cache),
        torch.from_numpy(inputs.block_table),
        torch.from_numpy(inputs.request_of_row),
        torch.from_numpy(trace.lengths),
        conventions=c,
        geometry=inputs.geometry,
    )
    _assert_same_scores(scores.numpy(), trace)

    narrow = trace.scores.values.astype(np.float32)
    lengths = torch.from_numpy(trace.lengths)
    chosen = select(torch.from_numpy(narrow), lengths, inputs.geometry.topk, conventions=c)
    np.testing.assert_array_equal(chosen.numpy(), select_reference(narrow, trace.lengths, inputs.geometry.topk, c))


def _assert_same_scores(scores: np.ndarray, trace: Trace) -> None:
    """Float32 sums of 128 products and 4 heads, then the rounding chain's own steps."""
    exact = trace.scores
    seen = np.isfinite(exact.values)
    np.testing.assert_array_equal(np.isneginf(scores), ~seen)
    products = _absolute_products(trace)
    bound = UNIT * (128 + 4 + 8) * products
    rounding = trace.conventions.score_rounding
    if rounding == "bf16-chain":
        # A product, a weighted product and the sum may each round to the other neighbour.
        bound = bound + 2.0**-8 * (3 * exact.magnitude + np.abs(exact.values) + products * 2.0**-8)
    elif rounding != "none":
        bound = bound + (2.0**-10 if rounding == "fp16" else 2.0**-7) * np.abs(exact.values) + 2.0**-24
    assert (np.abs(scores[seen] - exact.values[seen]) <= 1.01 * bound[seen]).all()


def _absolute_products(trace: Trace) -> np.ndarray:
    """Sum over heads and elements of |weight| |query| |key|, which float32 sums err in proportion to."""
    c, inputs = trace.conventions, trace.inputs
    folded = np.einsum("rh,rhd->rd", np.abs(trace.weights), np.abs(_decode(trace.codes, c.query)))
    keys = np.abs(_decode(trace.records, c.key))
    out = np.zeros(trace.scores.values.shape)
    for row in range(inputs.rows):
        mine = np.flatnonzero(inputs.key_request == inputs.request_of_row[row])
        index = inputs.key_index[mine]
        keep = index < trace.lengths[row]
        out[row, index[keep]] = keys[mine[keep]] @ folded[row]
    return out


@pytest.mark.parametrize("ties", ["low-index", "high-index"])
@pytest.mark.parametrize("order", ["any", "index", "score"])
@pytest.mark.parametrize("padding", ["minus-one", "zero", "int-max", "future"])
@pytest.mark.parametrize("nan", ["last", "first"])
def test_selection_rules_on_special_values(ties: str, order: str, padding: str, nan: str) -> None:
    conventions = PRESETS["sglang-v4-fp8"].conventions
    for path, value in (("topk_ties", ties), ("topk_order", order), ("topk_padding", padding), ("topk_nan", nan)):
        conventions = conventions.with_field(path, value)
    rng = np.random.default_rng(0)
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    scores = rng.choice(values, (7, 40))
    lengths = np.array([0, 1, 9, 10, 11, 39, 40], np.int32)
    for topk in (1, 10, 64):
        got = select(torch.from_numpy(scores), torch.from_numpy(lengths), topk, conventions=conventions)
        np.testing.assert_array_equal(got.numpy(), select_reference(scores, lengths, topk, conventions))


SGLANG = PRESETS["sglang-v4-fp8"].conventions


def test_no_rows_and_no_keys() -> None:
    geometry = Geometry(heads=4, page_size=16)
    cache = torch.zeros(1, 16 * 132, dtype=torch.uint8)
    for rows in (0, 3):
        request = torch.zeros(rows, dtype=torch.int32)
        codes, weights = torch.zeros(rows, 4, 128, dtype=torch.uint8), torch.zeros(rows, 4)
        table = torch.full((1, 2), -1, dtype=torch.int32)
        scores = score(codes, weights, cache, table, request, request, conventions=SGLANG, geometry=geometry)
        assert scores.shape == (rows, 0)
        assert select(scores, request, 5, conventions=SGLANG).tolist() == [[-1] * 5] * rows


@pytest.mark.parametrize(
    ("table", "length", "message"),
    [
        ([[0, -1]], 17, r"score\(block_table=.*got -1 as page 1 of row 0"),
        ([[2, -1]], 16, r"score\(block_table=.*in \[0, 2\).*got 2 as page 0"),
        ([[0, 1]], 33, r"score\(lengths=.*at most 32.*got 33"),
    ],
)
def test_bad_pages_are_named(table: list[list[int]], length: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(
            torch.zeros(1, 4, 128, dtype=torch.uint8),
            torch.zeros(1, 4),
            torch.zeros(2, 16 * 132, dtype=torch.uint8),
            torch.tensor(table, dtype=torch.int32),
            torch.zeros(1, dtype=torch.int32),
            torch.tensor([length], dtype=torch.int32),
            conventions=SGLANG,
            geometry=Geometry(heads=4, page_size=16),
        )


def test_bad_cache_slot_topk_and_length_are_named() -> None:
    inputs = _inputs(4)
    arguments = [torch.from_numpy(x) for x in (inputs.pooled, inputs.norm_weight, inputs.rope_table)]
    arguments += [torch.from_numpy(x) for x in (inputs.key_index, inputs.slots)]
    with pytest.raises(ValueError, match=r"`cache` should be uint8 \[pages, 2112\], got torch.uint8 \[9, 2111\]"):
        store_keys(*arguments, torch.zeros(9, 2111, dtype=torch.uint8), conventions=SGLANG, geometry=inputs.geometry)
    with pytest.raises(ValueError, match=r"`slots` should be below 16 \(1 pages\), got"):
        store_keys(*arguments, torch.zeros(1, 2112, dtype=torch.uint8), conventions=SGLANG, geometry=inputs.geometry)
    with pytest.raises(ValueError, match=r"select_rows\(topk=.*got 0"):
        select(torch.zeros(1, 4), torch.ones(1, dtype=torch.int32), 0, conventions=SGLANG)
    with pytest.raises(ValueError, match=r"select_rows\(lengths=.*in \[0, 4\], got 5 to 5"):
        select(torch.zeros(1, 4), torch.tensor([5], dtype=torch.int32), 1, conventions=SGLANG)

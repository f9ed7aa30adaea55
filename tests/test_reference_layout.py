"""Byte addresses of every cache layout, and reading and writing through them."""

from __future__ import annotations

import numpy as np
import pytest

from dsa_crosscheck.reference.cache import key_layout, read_records, request_slots, write_records
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.layout import PAGE_ORDERS, PageLayout
from dsa_crosscheck.reference.presets import PRESETS

FP8, FP4, BF16 = (PRESETS[f"sglang-v4-{name}"].conventions.key for name in ("fp8", "fp4", "bf16"))
RECORD_SIZES = {"fp8": (128, 4), "fp4": (64, 4), "bf16": (256, 0), "exact": (512, 0)}


@pytest.mark.parametrize(("codec", "page_bytes"), [(FP8, 8448), (FP4, 4352), (BF16, 16384)], ids=["fp8", "fp4", "bf16"])
@pytest.mark.parametrize("order", PAGE_ORDERS)
def test_page_bytes(codec: object, page_bytes: int, order: str) -> None:
    assert key_layout(codec, Geometry(), order).page_bytes == page_bytes  # type: ignore[arg-type]


@pytest.mark.parametrize(("values", "scales_at"), [(128, 8192), (64, 4096)], ids=["fp8", "fp4"])
def test_values_then_scales(values: int, scales_at: int) -> None:
    addresses = PageLayout(64, values, 4).addresses
    for token in range(64):
        assert addresses[token, :values].tolist() == list(range(values * token, values * token + values))
        assert addresses[token, values:].tolist() == [scales_at + 4 * token + i for i in range(4)]


def test_bf16_rows() -> None:
    np.testing.assert_array_equal(PageLayout(64, 256, 0).addresses.reshape(-1), np.arange(16384))


def test_token_interleaved() -> None:
    addresses = PageLayout(64, 128, 4, "token-interleaved").addresses
    np.testing.assert_array_equal(addresses.reshape(-1), np.arange(8448))


def test_page_of_one_token_is_the_record_itself() -> None:
    for order in ("values-then-scales", "token-interleaved"):
        np.testing.assert_array_equal(PageLayout(1, 128, 4, order).addresses, np.arange(132)[None])


def test_tiles() -> None:
    t, d, tile = np.arange(64)[:, None], np.arange(128)[None, :], 16
    expected = (t // tile) * tile * 128 + (d // tile) * tile * tile + (t % tile) * tile + d % tile
    addresses = PageLayout(64, 128, 4, "tiles-16x16").addresses
    np.testing.assert_array_equal(addresses[:, :128], expected)
    np.testing.assert_array_equal(addresses[:, 128:], PageLayout(64, 128, 4).addresses[:, 128:])


@pytest.mark.parametrize("sizes", RECORD_SIZES.values(), ids=RECORD_SIZES)
@pytest.mark.parametrize("page_size", [1, 2, 16, 64])
@pytest.mark.parametrize("order", PAGE_ORDERS)
def test_every_order_is_a_bijection(order: str, page_size: int, sizes: tuple[int, int]) -> None:
    layout = PageLayout(page_size, *sizes, order)
    np.testing.assert_array_equal(np.sort(layout.addresses.reshape(-1)), np.arange(layout.page_bytes))


def test_orders_differ() -> None:
    tables = [PageLayout(16, 128, 4, order).addresses.tobytes() for order in PAGE_ORDERS]
    assert len(set(tables)) == len(PAGE_ORDERS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((64, 128, 4, "rows"), r"`PageLayout\(page_order=\.\.\.\)` should be one of .*, got 'rows'"),
        ((0, 128, 4), r"needs page_size >= 1.* got 0, 128, 4, 1"),
        ((64, 0, 4), r"value_bytes >= 1.* got 64, 0, 4, 1"),
        ((64, 128, -1), r"scale_bytes >= 0.* got 64, 128, -1, 1"),
        ((64, 128, 4, "values-then-scales", 0), r"page_align >= 1, got 64, 128, 4, 0"),
        ((24, 128, 4, "tiles-16x16"), r"whole 16 x 16 tiles, got page_size=24, value_bytes=128"),
        ((64, 100, 4, "tiles-16x16"), r"whole 16 x 16 tiles, got page_size=64, value_bytes=100"),
    ],
)
def test_illegal_layouts(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PageLayout(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", PAGE_ORDERS)
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_written_records_are_read_back_and_nothing_else_changes(page_size: int, order: str) -> None:
    rng = np.random.default_rng(1)
    layout = PageLayout(page_size, 128, 4, order)
    cache = rng.integers(0, 256, (5, layout.page_bytes), np.uint8)
    before = cache.copy()
    slots = rng.permutation(5 * page_size)[: max(2, 2 * page_size)]
    records = rng.integers(0, 256, (slots.size, 132), np.uint8)
    write_records(cache, layout, records, slots)
    np.testing.assert_array_equal(read_records(cache, layout, slots), records)
    others = np.setdiff1d(np.arange(5 * page_size), slots)
    np.testing.assert_array_equal(read_records(cache, layout, others), read_records(before, layout, others))


def test_padding_bytes_of_a_page_are_not_touched() -> None:
    layout = PageLayout(2, 576, 8, page_align=576)
    cache = np.full((1, layout.page_bytes), 7, np.uint8)
    write_records(cache, layout, np.zeros((2, 584), np.uint8), np.arange(2))
    assert (cache[0, :1168] == 0).all()
    assert (cache[0, 1168:] == 7).all()


def test_negative_slots_are_skipped() -> None:
    layout = PageLayout(16, 128, 4)
    cache = np.zeros((2, layout.page_bytes), np.uint8)
    write_records(cache, layout, np.full((3, 132), [[1], [2], [3]], np.uint8), np.array([-1, 20, -17]))
    assert (read_records(cache, layout, np.array([20])) == 2).all()
    assert np.count_nonzero(cache) == 132


def test_no_records() -> None:
    layout = PageLayout(16, 128, 4)
    cache = np.zeros((0, layout.page_bytes), np.uint8)
    write_records(cache, layout, np.zeros((0, 132), np.uint8), np.zeros(0, np.int64))
    assert read_records(cache, layout, np.zeros(0, np.int64)).shape == (0, 132)


def test_cache_errors() -> None:
    layout = PageLayout(16, 128, 4)
    cache = np.zeros((2, layout.page_bytes), np.uint8)
    record = np.zeros((1, 132), np.uint8)
    for action in (lambda s: write_records(cache, layout, record, s), lambda s: read_records(cache, layout, s)):
        with pytest.raises(ValueError, match=r"`slots` should be below 32 \(2 pages\), got 32"):
            action(np.array([32]))
    with pytest.raises(ValueError, match=r"`read_records\(slots=\.\.\.\)` should not be negative, got -1"):
        read_records(cache, layout, np.array([-1]))
    for bad in (cache[:, :-1], cache.astype(np.int8), cache[0]):
        with pytest.raises(ValueError, match=r"`cache` should be uint8 \[pages, 2112\], got"):
            write_records(bad, layout, record, np.array([0]))


def test_request_slots_follow_the_block_table() -> None:
    table = np.array([[3, 0, -1], [2, -1, -1]], np.int32)
    assert request_slots(table, 0, np.array([0, 15, 16, 31]), 16).tolist() == [48, 63, 0, 15]
    assert request_slots(table, 1, np.array([5]), 16).tolist() == [37]
    assert request_slots(table, 0, np.zeros(0, np.int64), 16).tolist() == []


@pytest.mark.parametrize(("request_index", "key"), [(0, 32), (0, 48), (1, 16), (1, -1), (0, 10**9)])
def test_request_slots_off_the_table(request_index: int, key: int) -> None:
    table = np.array([[3, 0, -1], [2, -1, 1]], np.int32)
    message = rf"`request_slots\(index=\.\.\.\)`: key {key} of request {request_index} has no page"
    with pytest.raises(ValueError, match=message):
        request_slots(table, request_index, np.array([0, key]), 16)

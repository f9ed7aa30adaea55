"""Permutations of bytes are decoded and named, for writers and readers of every format."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from dsa_crosscheck.compare.candidates.reference import ReferenceCandidate
from dsa_crosscheck.compare.diagnosis.decode import decode
from dsa_crosscheck.compare.diagnosis.permutations import permutation_name
from dsa_crosscheck.compare.mutants.faults import FAULTS
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.hadamard import row_order
from dsa_crosscheck.reference.lanes import lane_permutation
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.presets import PRESETS

FORMATS = {"fp8": "sglang-v4-fp8", "fp4": "sglang-v4-fp4", "bf16": "sglang-v4-bf16", "fp32": "transformers-v4"}


@cache
def setup(name: str) -> Setup:
    row = PRESETS[FORMATS[name]]
    inputs = build_case("address-coded", context=1024, rows=4, topk=64, geometry=row.geometry)
    return Setup(inputs, row.conventions, model("ieee-fp32"))


def sentence(name: str, method: str, path: str, value: object) -> str:
    flipped = ReferenceCandidate(setup(name).conventions.with_field(path, value))
    return " ".join(decode(flipped, setup(name), method))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("method", ["store_keys", "score"])
def test_right_candidates_are_where_declared(name: str, method: str) -> None:
    assert decode(ReferenceCandidate(setup(name).conventions), setup(name), method) == []


@pytest.mark.parametrize("name", ["fp8", "fp4"])
def test_token_interleaved_is_named_with_its_bytes(name: str) -> None:
    record = PRESETS[FORMATS[name]].conventions.key.record_bytes(128)
    values = PRESETS[FORMATS[name]].conventions.key.value_bytes(128)
    written = sentence(name, "store_keys", "page_order", "token-interleaved")
    assert "written in token-interleaved order, not values-then-scales" in written
    assert f"bytes {record} to {record + values - 1} of page" in written
    read = sentence(name, "score", "page_order", "token-interleaved")
    assert "read in token-interleaved order" in read
    assert "scales of 95 of 96 tokens are read from other bytes" in read


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("method", "verb"), [("store_keys", "written"), ("score", "read")])
def test_tiles_are_named_with_whose_bytes(name: str, method: str, verb: str) -> None:
    said = sentence(name, method, "page_order", "tiles-16x16")
    assert f"values are {verb} in tiles-16x16 order" in said
    assert "the place of (token" in said


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("order", ["strided", "bit-reversed"])
def test_lane_orders_of_a_writer_are_named(name: str, order: str) -> None:
    said = sentence(name, "store_keys", "lane_order_key", order)
    assert f"elements of a vector in another order: {order}" in said
    assert order != "strided" or "32 lanes, stride 32" in said


@pytest.mark.parametrize("method", ["store_keys", "score"])
def test_nibbles(method: str) -> None:
    assert "even elements in the high nibble" in sentence("fp4", method, "key.nibbles", "high-even")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("fault", ["store-next-page", "score-next-page"])
def test_another_page(name: str, fault: str) -> None:
    faulty = FAULTS[fault].apply(ReferenceCandidate(setup(name).conventions), setup(name).inputs)
    said = " ".join(decode(faulty, setup(name), FAULTS[fault].stage))
    assert "on other pages: page 2 for page 1" in said or "on other pages: page 3 for page 2" in said


def test_neighbours_scale() -> None:
    fault = FAULTS["score-neighbour-scale"]
    faulty = fault.apply(ReferenceCandidate(setup("fp8").conventions), setup("fp8").inputs)
    said = decode(faulty, setup("fp8"), "score")
    assert len(said) == 1
    assert "scales of 96 of 96 tokens are read from other bytes" in said[0]


class OtherNumbers(ReferenceCandidate):
    """Stores the keys without the transform: no rearrangement of anything."""

    def __init__(self) -> None:
        super().__init__(setup("fp8").conventions.with_field("hadamard_key", False))


class NoProduct(ReferenceCandidate):
    """Scores that no element explains."""

    def score(self, *args: torch.Tensor) -> torch.Tensor:
        return torch.rand(args[0].shape[0], int(args[-1].max()), generator=torch.Generator().manual_seed(0))


def test_other_numbers_are_not_decoded() -> None:
    assert "no rearrangement" in decode(OtherNumbers(), setup("fp8"), "store_keys")[0]
    assert "can't be decoded" in decode(NoProduct(setup("fp8").conventions), setup("fp8"), "score")[0]


INDEX = np.arange(128)


@pytest.mark.parametrize(
    ("order", "name"),
    [
        (INDEX, "lane-major"),
        (lane_permutation("strided", 128), "strided (32 lanes"),
        (lane_permutation("bit-reversed", 128), "bit-reversed"),
        (row_order(128, "sequency"), "sequency"),
        (np.argsort(row_order(128, "sequency")), "inverse of sequency"),
        (INDEX[::-1], "reversed"),
        (INDEX ^ 1, "neighbours swapped"),
        (np.roll(INDEX, 64), "halves swapped"),
        (INDEX.reshape(-1, 8).T.reshape(-1), "strided (8 lanes"),
        (np.roll(INDEX, -3), "rotated by 3"),
        (np.random.default_rng(0).permutation(128), "explicit order ["),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_permutation_names(order: np.ndarray, name: str) -> None:
    assert permutation_name(order).startswith(name)


def test_no_permutation_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"`permutation_name\(order=...\)` should hold each of 0 to 3 once"):
        permutation_name(np.array([0, 1, 1, 3]))

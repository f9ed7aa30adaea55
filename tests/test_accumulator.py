"""The accumulator probes recover the width, rounding and grouping of accumulators that are made up here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates import deepgemm_package
from dsa_crosscheck.compare.candidates.kernels import Emulated
from dsa_crosscheck.compare.candidates.registry import BUILT_IN, CandidateError
from dsa_crosscheck.compare.device.accumulator import measure, measure_accumulator, render
from dsa_crosscheck.compare.device.addition_groups import find_groups
from dsa_crosscheck.compare.device.exact_products import DTYPES, FORMATS, factors, score_products
from dsa_crosscheck.compare.device.rounding_direction import fractions_of_last_bit
from dsa_crosscheck.reference.presets import PRESETS

Array = np.ndarray
Sum = Callable[[Array], Array]
NEAREST, TOWARD_ZERO, DOWN, UP = np.rint, np.trunc, np.floor, np.ceil
IN_ORDER = np.arange(128)
INTERLEAVED = IN_ORDER.reshape(2, 4, 4, 4).transpose(0, 2, 1, 3).reshape(-1)
"""An instruction takes four elements from each of four places."""


class Adder:
    """A scorer that adds the products of head 0 by ``add``: float32 [..., 128], which holds them, to [...]."""

    name = "adder"

    def __init__(self, kind: str, add: Sum) -> None:
        self.conventions = PRESETS[FORMATS[kind]].conventions
        self.add = add

    def score(
        self, codes: torch.Tensor, weights: torch.Tensor, cache: torch.Tensor, *where: torch.Tensor
    ) -> torch.Tensor:
        table, request, lengths = (tensor.numpy() for tensor in where)
        key = self.conventions.key
        dtype, width = DTYPES[key.format], key.value_bytes(128)
        assert not weights[:, 1:].any()
        query = codes[:, 0].numpy().view(dtype).astype(np.float32) * weights[:, :1].numpy()
        pages = cache.numpy()[table[request]]
        values = np.ascontiguousarray(pages[..., : 64 * width]).view(dtype).astype(np.float32)
        keys = values.reshape(request.size, -1, 128)
        if key.scale_bytes:
            scale = np.ascontiguousarray(pages[..., 64 * width :]).view(np.float32)
            keys *= scale.reshape(request.size, -1, 1)
        keys = keys[:, : lengths.max()]
        return torch.from_numpy(np.maximum(self.add(query[:, None] * keys), 0).astype(np.float32))


def exact(products: Array) -> Array:
    """Sums that lose nothing."""
    return products.sum(axis=-1, dtype=np.float64)


def cut(x: Array, largest: Array, bits: int, direction: Callable[[Array], Array]) -> Array:
    """``x`` as a multiple of the last of ``bits`` bits of ``largest``."""
    _, exponent = np.frexp(np.abs(largest))
    step = np.ldexp(1.0, exponent - bits)
    return direction(x / step) * step


def matrix_unit(
    products: Array,
    *,
    width: int,
    bits: int,
    direction: Callable[[Array], Array] = TOWARD_ZERO,
    result_bits: int = 24,
    result_direction: Callable[[Array], Array] = TOWARD_ZERO,
    order: Array = IN_ORDER,
) -> Array:
    """``width`` products an instruction, aligned with the running sum to the largest, which is then a float again.

    Only the few products that are not zero are looked at: a zero adds nothing to an instruction, and an
    instruction of zeros leaves the running sum as it was.
    """
    vector, element = np.divmod(np.flatnonzero(products != 0), 128)
    number = np.arange(vector.size) - np.searchsorted(vector, vector)
    some, when = np.zeros((2, products.size // 128, number.max() + 1))
    some[vector, number] = products.reshape(-1, 128)[vector, element]
    when[vector, number] = (np.argsort(order) // width)[element]
    running = np.zeros(products.size // 128)
    for instruction in range(128 // width):
        addends = np.concatenate([np.where(when == instruction, some, 0), running[..., None]], axis=-1)
        largest = np.abs(addends).max(axis=-1, keepdims=True)
        total = cut(addends, largest, bits, direction).sum(axis=-1)
        running = cut(total, total, min(bits, result_bits), result_direction)
    return running.reshape(products.shape[:-1])


def chain(products: Array) -> Array:
    """Ordinary float32 additions, one after another."""
    return np.add.accumulate(products, axis=-1)[..., -1]


def tree(products: Array) -> Array:
    """Ordinary float32 additions of neighbours, then of neighbouring sums."""
    x = products
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


@pytest.mark.parametrize(("kind", "bits", "width"), [("fp8", 14, 32), ("bf16", 20, 64)])
def test_a_matrix_unit_is_recovered(kind: str, bits: int, width: int) -> None:
    found = measure_accumulator(Adder(kind, partial(matrix_unit, width=width, bits=bits)))
    assert (found["result_bits"], found["kept_bits"], found["within_bits"]) == (bits,) * 3
    # Of two groups neither lies between the first and another.
    assert found["between_bits"] == (bits if width < 64 else None)
    assert (found["rounding"], found["addend_rounding"]) == ("toward zero", "toward zero")
    assert found["groups"] == IN_ORDER.reshape(-1, width).tolist()
    assert found["observations"]["result_spreads"] == {str(bits - 1): 128 * 127}


def test_more_bits_in_an_instruction_than_in_a_result_and_elements_from_anywhere() -> None:
    unit = partial(matrix_unit, width=16, bits=26, direction=NEAREST, result_bits=24, order=INTERLEAVED)
    found = measure_accumulator(Adder("fp8", unit))
    assert (found["result_bits"], found["kept_bits"]) == (24, 24)
    assert (found["within_bits"], found["between_bits"]) == (26, 24)
    assert (found["rounding"], found["addend_rounding"]) == ("toward zero", "nearest")
    assert found["groups"] == np.sort(INTERLEAVED.reshape(-1, 16)).tolist()
    assert found["groups"][0][:5] == [0, 1, 2, 3, 16]


@pytest.mark.parametrize(
    ("direction", "name"), [(NEAREST, "nearest"), (TOWARD_ZERO, "toward zero"), (DOWN, "down"), (UP, "up")]
)
def test_the_rounding_of_results_is_told_apart(direction: Callable[[Array], Array], name: str) -> None:
    unit = partial(matrix_unit, width=32, bits=30, result_bits=20, result_direction=direction)
    fractions = fractions_of_last_bit(Adder("bf16", unit), 2.0**16, 19)
    before_last = np.maximum(IN_ORDER[:, None], IN_ORDER) < 96
    assert fractions.direction(before_last) == name


def test_float32_one_after_another() -> None:
    found = measure_accumulator(Adder("bf16", chain))
    assert (found["result_bits"], found["kept_bits"], found["between_bits"]) == (24, 24, 24)
    assert found["rounding"] == "nearest"
    assert found["groups"] == [[0, 1], *([i] for i in range(2, 128))]


def test_a_tree_is_no_sequence() -> None:
    found = measure_accumulator(Adder("fp8", tree))
    assert (found["kept_bits"], found["rounding"]) == (24, "nearest")
    assert found["groups"] is found["within_bits"] is found["between_bits"] is None


def test_exact_sums_lose_nothing() -> None:
    found = measure_accumulator(Adder("fp8", exact))
    assert (found["result_bits"], found["kept_bits"], found["groups"]) == (24, None, None)
    assert found["observations"]["kept_spreads"] == {"34": 127 * 126}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_portable_kernel_adds_in_float32(kind: str) -> None:
    found = measure_accumulator(Emulated(PRESETS[FORMATS[kind]].conventions))
    assert (found["result_bits"], found["kept_bits"], found["rounding"]) == (24, 24, "nearest")
    assert found["groups"] is None, "interleaved sums, then a tree"


def test_products_of_every_spread_have_factors_in_both_formats() -> None:
    for exponent, mantissa in product(range(-18, 17), (1.0, -1.0)):
        left, right = factors(mantissa * 2.0**exponent)
        assert left * right == mantissa * 2.0**exponent
        assert all(2.0**-9 <= abs(x) <= 2.0**8 for x in (left, right))


def test_scores_of_two_and_three_products() -> None:
    adder = Adder("bf16", exact)
    two = score_products(adder, 8.0, -1.5)
    assert np.isnan(np.diag(two)).all()
    assert (two[~np.eye(128, dtype=bool)] == 6.5).all()
    three = score_products(adder, -8.0, 1.5, (5, 8.0))
    assert np.isnan(three[5]).all()
    assert np.isnan(three[:, 5]).all()
    assert three[3, 4] == 1.5
    with pytest.raises(ValueError, match=r"products of two fp8-e4m3fn numbers, got 1.0625"):
        score_products(Adder("fp8", exact), 1.0, 1.0625)


def test_groups_that_overlap_are_none() -> None:
    free = np.zeros((4, 4), bool)
    free[1, 2] = free[2, 3] = free[3, 1] = True
    assert find_groups(free) is None


def test_records_and_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN, "cutting", f"{__name__}:Cutting")
    records = measure(["cutting"])
    assert [(r["candidate"], r["format"]) for r in records] == [("cutting", "fp8"), ("cutting", "bf16")]
    lines = render(records).splitlines()
    assert " ".join(lines[0].split()) == "scores result bits kept in a group between rounding of addends groups"
    assert " ".join(lines[1].split()) == "cutting fp8 14 14 14 14 toward zero toward zero 4 x 32"
    assert lines[2].startswith("left out: cutting bf16: ")
    assert "multiplies fp8 only" in lines[2]


class Cutting(Adder):
    """A matrix unit for fp8 alone."""

    def __init__(self, conventions: object) -> None:
        if conventions != PRESETS[FORMATS["fp8"]].conventions:
            raise Unsupported("multiplies fp8 only")
        super().__init__("fp8", partial(matrix_unit, width=32, bits=14))


def test_a_candidate_for_no_format_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepgemm_package, "find_spec", lambda name: None)
    with pytest.raises(CandidateError, match="needs the package sgl-deep-gemm"):
        measure(["deepgemm"])
    with pytest.raises(CandidateError, match="should be one of emulated"):
        measure(["fused"])

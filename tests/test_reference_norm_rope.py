"""Norms and rotary embedding by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.keys import key_positions
from dsa_crosscheck.reference.norm import norm
from dsa_crosscheck.reference.rope import rope

# Row 0 turns nothing; row 1 turns pair i by angle i + 1.
ANGLES = np.array([[0.0, 0.0], [1.0, 2.0]])
TABLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=-1).reshape(2, 4)
VARIANTS = pytest.mark.parametrize(
    ("pairing", "dims", "pairs"),
    [
        ("interleaved", "first", [(0, 1), (2, 3)]),
        ("interleaved", "last", [(4, 5), (6, 7)]),
        ("half-split", "first", [(0, 2), (1, 3)]),
        ("half-split", "last", [(4, 6), (5, 7)]),
    ],
)


@VARIANTS
def test_rope_of_basis_vectors(pairing: str, dims: str, pairs: list[tuple[int, int]]) -> None:
    """Column j of the rotation: e_a goes to (cos, sin) of its pair and e_b to (-sin, cos)."""
    expected = np.eye(8)
    for angle, (a, b) in zip([1.0, 2.0], pairs, strict=True):
        expected[a, [a, b]] = np.cos(angle), np.sin(angle)
        expected[b, [a, b]] = -np.sin(angle), np.cos(angle)
    got = rope(np.eye(8), TABLE, np.ones(8, np.int64), pairing=pairing, dims=dims)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-15)


@VARIANTS
def test_rope_at_position_zero_is_the_identity(pairing: str, dims: str, pairs: list[tuple[int, int]]) -> None:
    del pairs
    x = np.random.default_rng(0).standard_normal((3, 8))
    np.testing.assert_array_equal(rope(x, TABLE, np.zeros(3, np.int64), pairing=pairing, dims=dims), x)


@VARIANTS
def test_rope_of_heads_uses_one_position_a_row(pairing: str, dims: str, pairs: list[tuple[int, int]]) -> None:
    del pairs
    x = np.random.default_rng(1).standard_normal((2, 3, 8))
    got = rope(x, TABLE, np.array([1, 0]), pairing=pairing, dims=dims)
    alone = rope(x[0], TABLE, np.ones(3, np.int64), pairing=pairing, dims=dims)
    np.testing.assert_array_equal(got[0], alone)
    np.testing.assert_array_equal(got[1], x[1])


def test_rope_of_nothing() -> None:
    got = rope(np.zeros((0, 8)), TABLE, np.zeros(0, np.int64), pairing="interleaved", dims="last")
    assert got.shape == (0, 8)


@pytest.mark.parametrize(("position", "shown"), [(-1, "-1 to 0"), (2, "0 to 2")])
def test_rope_position_outside_the_table(position: int, shown: str) -> None:
    message = rf"`rope\(positions=\.\.\.\)` should be in \[0, 2\), got {shown}"
    with pytest.raises(ValueError, match=message):
        rope(np.eye(8)[:2], TABLE, np.array([0, position]), pairing="interleaved", dims="last")


def test_rope_errors() -> None:
    x, zero = np.ones((1, 8)), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match=r"`rope\(pairing=\.\.\.\)` should be 'interleaved' or .* got 'neox'"):
        rope(x, TABLE, zero, pairing="neox", dims="last")
    with pytest.raises(ValueError, match=r"`rope\(dims=\.\.\.\)` should be 'first' or 'last', got 'all'"):
        rope(x, TABLE, zero, pairing="interleaved", dims="all")
    with pytest.raises(ValueError, match=r"`rope\(table=\.\.\.\)` should have at most 2 columns, got 4"):
        rope(x[:, :2], TABLE, zero, pairing="interleaved", dims="last")


def test_key_positions() -> None:
    for rule, expected in (("group-first", [0, 1, 2]), ("group-last", [0, 1, 2])):
        assert key_positions(np.arange(3), Geometry(compress_ratio=1), rule).tolist() == expected
    geometry = Geometry(compress_ratio=4)
    assert key_positions(np.arange(3), geometry, "group-first").tolist() == [0, 4, 8]
    assert key_positions(np.arange(3), geometry, "group-last").tolist() == [3, 7, 11]
    with pytest.raises(ValueError, match=r"`key_positions\(rule=\.\.\.\)` should be .* got 'middle'"):
        key_positions(np.arange(3), geometry, "middle")


def test_rms_norm_by_hand() -> None:
    x, weight = np.array([[3.0, -4.0], [0.0, 0.0]]), np.array([1.0, 2.0])
    root = np.sqrt((9 + 16) / 2 + 0.5)
    expected = [[3 / root, -8 / root], [0.0, 0.0]]
    got = norm(x, weight, np.array([100.0, 100.0]), kind="rms", eps=0.5)
    np.testing.assert_allclose(got, expected, rtol=1e-15)


def test_layer_norm_by_hand() -> None:
    x, weight, bias = np.array([[1.0, 5.0], [7.0, 7.0]]), np.array([1.0, 2.0]), np.array([10.0, 20.0])
    root = np.sqrt(4 + 0.5)
    expected = [[10 - 2 / root, 20 + 4 / root], [10.0, 20.0]]
    np.testing.assert_allclose(norm(x, weight, bias, kind="layer", eps=0.5), expected, rtol=1e-15)


def test_norm_keeps_leading_axes_and_accepts_none() -> None:
    ones = np.ones(4)
    assert norm(np.ones((2, 3, 4)), ones, ones, kind="rms", eps=1e-6).shape == (2, 3, 4)
    assert norm(np.ones((0, 4)), ones, ones, kind="layer", eps=1e-6).shape == (0, 4)


def test_norm_of_another_kind() -> None:
    with pytest.raises(ValueError, match=r"`norm\(kind=\.\.\.\)` should be one of \('rms', 'layer'\), got 'batch'"):
        norm(np.ones((1, 4)), np.ones(4), np.ones(4), kind="batch", eps=1e-6)

"""Records that declare conventions: what they refuse, and how one field is changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsa_crosscheck.reference.causal import visible_keys
from dsa_crosscheck.reference.codec_spec import CODEC_CHOICES, Codec
from dsa_crosscheck.reference.conventions import BF16_POINTS, CHOICES, Conventions, flips, get_field, paths
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.presets import PRESETS, preset

FP8 = Codec("fp8-e4m3fn", "fp32", 1e-4, "amax", "divide", "reciprocal")
FP4 = Codec("fp4-e2m1", "power-of-two", 1e-4, "amax", ties="even", nibbles="low-even")
BASE = Conventions(key=FP8, query=FP8)


@pytest.mark.parametrize(
    ("codec", "field", "value"),
    [
        (FP8, "format", "fp8-e5m2"),
        (FP8, "scale", "fp16"),
        (FP8, "scale", None),
        (FP8, "amax_floor", None),
        (FP8, "amax_floor", 0.0),
        (FP8, "amax_floor", 1),
        (FP8, "floor_on", None),
        (FP8, "floor_on", "group"),
        (FP8, "scale_from", None),
        (FP8, "apply", None),
        (FP8, "ties", "even"),
        (FP8, "nibbles", "low-even"),
        (FP4, "scale", "fp32"),
        (FP4, "scale", "unit"),
        (FP4, "scale_from", "divide"),
        (FP4, "apply", "divide"),
        (FP4, "ties", None),
        (FP4, "ties", "away"),
        (FP4, "nibbles", None),
        (Codec("fp8-e4m3fn", "unit"), "amax_floor", 1e-4),
        (Codec("fp8-e4m3fn", "unit"), "floor_on", "amax"),
        (Codec("bf16"), "scale", "fp32"),
        (Codec("bf16"), "ties", "even"),
        (Codec("exact"), "amax_floor", 1e-4),
        (Codec("exact"), "nibbles", "low-even"),
    ],
)
def test_illegal_codecs(codec: Codec, field: str, value: object) -> None:
    """Named by its field, whether built at once or changed to."""
    with pytest.raises(ValueError, match=rf"`Codec\({field}=\.\.\.\)` should be .*got {value!r}"):
        replace(codec, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"`Codec\({field}=\.\.\.\)` should be .*got {value!r}"):
        codec.with_field(field, value)


def test_codec_has_no_such_field() -> None:
    with pytest.raises(ValueError, match=r"`field` should be one of \('format', .*, got 'rounding'"):
        FP8.with_field("rounding", "even")


UNSCALED = replace(BASE, query=Codec("bf16"), query_scale_in=None)
UNROTATED = replace(BASE, hadamard_key=False, hadamard_query=False, hadamard_order=None, hadamard_scale=None)


@pytest.mark.parametrize(
    ("conventions", "field", "value"),
    [
        *((BASE, field, "other") for field in CHOICES if field != "norm_eps"),
        *((BASE, field, None) for field in CHOICES if field != "norm_eps"),
        (BASE, "norm_eps", 1),
        (BASE, "norm_eps", 0.0),
        (UNSCALED, "query_scale_in", "weights"),
        (UNSCALED, "query_scale_in", "record"),
        (UNROTATED, "hadamard_order", "natural"),
        (UNROTATED, "hadamard_scale", "orthonormal"),
    ],
)
def test_illegal_conventions(conventions: Conventions, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"`Conventions\({field}=\.\.\.\)` should be .*got {value!r}"):
        replace(conventions, **{field: value})  # type: ignore[arg-type]


def test_unknown_bf16_point() -> None:
    with pytest.raises(ValueError, match=r"`Conventions\(bf16_points=\.\.\.\)` should hold only .*, got \['scored'\]"):
        replace(BASE, bf16_points=frozenset({"scored", "pooled"}))


@pytest.mark.parametrize("path", ["rope", "key", "key.rounding", "value.format", ""])
def test_no_such_path(path: str) -> None:
    with pytest.raises(ValueError, match=rf"`path` should be one of \('norm', .*, got '{path}'"):
        BASE.with_field(path, "even")


@pytest.mark.parametrize("name", PRESETS)
def test_with_field_round_trips(name: str) -> None:
    """To the value that is there: nothing changes. There and back: the field is as before."""
    conventions = PRESETS[name].conventions
    for path in paths(conventions):
        assert conventions.with_field(path, get_field(conventions, path)) == conventions
    for path, value, flipped in flips(conventions):
        assert get_field(flipped, path) == value
        back = flipped.with_field(path, get_field(conventions, path))
        assert get_field(back, path) == get_field(conventions, path)


@pytest.mark.parametrize("name", PRESETS)
def test_a_flip_of_an_independent_field_changes_that_field_alone(name: str) -> None:
    conventions = PRESETS[name].conventions
    with_dependents = ("hadamard_key", "hadamard_query", "key.format", "key.scale", "query.format", "query.scale")
    for path, _, flipped in flips(conventions):
        if path in with_dependents:
            continue
        others = [p for p in paths(conventions) if p != path]
        assert list(paths(flipped)) == list(paths(conventions))
        assert [get_field(flipped, p) for p in others] == [get_field(conventions, p) for p in others]


def test_dependent_fields_appear_and_vanish() -> None:
    fp4 = BASE.with_field("key.format", "fp4-e2m1")
    assert fp4.key == replace(FP4, amax_floor=1e-4)
    assert fp4.with_field("key.format", "bf16").key == Codec("bf16")
    power = BASE.with_field("key.scale", "power-of-two")
    assert (power.key.apply, power.key.scale_from) == (None, None)
    assert power.with_field("key.scale", "fp32").key == replace(FP8, apply="reciprocal", scale_from="divide")
    assert BASE.with_field("query.scale", "unit").query_scale_in is None
    assert UNSCALED.with_field("query.format", "fp8-e4m3fn").query_scale_in == "record"
    off = BASE.with_field("hadamard_key", False)
    assert (off.hadamard_order, off.hadamard_scale) == ("natural", "orthonormal")
    assert off.with_field("hadamard_query", False) == UNROTATED
    assert UNROTATED.with_field("hadamard_key", True) == replace(BASE, hadamard_query=False)


def test_flips_cover_every_choice() -> None:
    """Over all presets, every value of every field is either a preset's or a flip's."""
    seen: dict[str, set[object]] = {}
    for p in PRESETS.values():
        for path in paths(p.conventions):
            seen.setdefault(path, set()).add(get_field(p.conventions, path))
        for path, value, _ in flips(p.conventions):
            seen.setdefault(path, set()).add(value)
    for name, choices in CHOICES.items():
        assert seen[name] == set(choices) - {None}
    for operand in ("key", "query"):
        for name, choices in CODEC_CHOICES.items():
            assert seen[f"{operand}.{name}"] == set(choices) - {None}
    toggled = {point for points in seen["bf16_points"] for point in points}  # type: ignore[attr-defined]
    assert toggled == set(BF16_POINTS)


def test_visible_keys() -> None:
    positions = np.arange(9)
    assert visible_keys(positions, 4, "finished-groups").tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert visible_keys(positions, 4, "own-group").tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    one, own = (visible_keys(positions, 1, rule).tolist() for rule in ("finished-groups", "own-group"))
    assert one == own == list(range(1, 10))
    with pytest.raises(ValueError, match=r"`visible_keys\(rule=\.\.\.\)` should be .*, got 'all'"):
        visible_keys(positions, 4, "all")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("heads", 0, "a positive integer, got 0"),
        ("topk", 2.0, "a positive integer, got 2.0"),
        ("page_size", True, "a positive integer, got True"),
        ("head_dim", 96, "a power of two, got 96"),
        ("rope_dim", 63, "even and at most head_dim=128, got 63"),
        ("rope_dim", 130, "even and at most head_dim=128, got 130"),
        ("compress_ratio", -4, "a positive integer, got -4"),
    ],
)
def test_illegal_geometry(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=rf"`Geometry\({field}=\.\.\.\)` should be {message}"):
        Geometry(**{field: value})  # type: ignore[arg-type]


def test_preset_names_and_sources() -> None:
    assert list(PRESETS) == [
        "deepseek-v32",
        "deepseek-v4",
        "sglang-v4-fp8",
        "sglang-v4-bf16",
        "sglang-v4-fp4",
        "deepgemm-fp8",
        "transformers-v4",
    ]
    assert all(len(p.source) > 20 for p in PRESETS.values())
    assert len({p.conventions for p in PRESETS.values()}) == len(PRESETS)
    assert preset("deepseek-v4") is PRESETS["deepseek-v4"]
    with pytest.raises(ValueError, match=r"`preset` should be one of \('deepseek-v32', .*, got 'v4'"):
        preset("v4")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("deepseek-v32", 132),
        ("deepseek-v4", 68),
        ("sglang-v4-fp8", 132),
        ("sglang-v4-bf16", 256),
        ("sglang-v4-fp4", 68),
        ("deepgemm-fp8", 132),
        ("transformers-v4", 512),
    ],
)
def test_key_bytes(name: str, size: int) -> None:
    assert PRESETS[name].conventions.key.record_bytes(PRESETS[name].geometry.head_dim) == size


def test_codec_sizes() -> None:
    assert [FP8.groups(128), FP4.groups(128), FP4.groups(32), Codec("bf16").groups(128)] == [1, 4, 1, 0]
    assert [FP8.scale_bytes, FP4.scale_bytes, Codec("fp8-e4m3fn", "unit").scale_bytes] == [4, 1, 0]
    assert [FP8.value_bytes(128), FP4.value_bytes(128), Codec("exact").value_bytes(128)] == [128, 64, 512]

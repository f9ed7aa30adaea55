"""Golden files: every bit comes back, the hash covers what arrays say, and damage is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest
import xarray as xr

from dsa_crosscheck.fixtures.golden.conventions_json import (
    conventions_from_json,
    conventions_to_json,
    geometry_from_json,
    geometry_to_json,
)
from dsa_crosscheck.fixtures.golden.golden import Golden, load_golden, save_golden
from dsa_crosscheck.fixtures.golden.hashing import array_hash, content_hash
from dsa_crosscheck.fixtures.golden.logical import LOGICAL, check_storage, plain_values
from dsa_crosscheck.fixtures.netcdf import CaseFileError, StoredArray
from dsa_crosscheck.reference.conventions import flips
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.presets import PRESETS

BYTES = np.arange(256, dtype=np.uint8)
SPECIAL = [0x7FF8000000000123, 0xFFF0000000000000, 0x8000000000000000, 1, 0x7FF0000000000000, 0]
"""NaN with a payload, -inf, -0.0, the least subnormal, inf, zero."""


def every_bit_pattern() -> Golden:
    """All 256 fp8 and scale codes, all 65,536 bfloat16 ones, and special wide floats."""
    doubles = np.array(SPECIAL, np.uint64).view(np.float64)
    singles = np.array([0x7FC00123, 0xFF800001, 0x80000000, 1, 0x7F7FFFFF], np.uint32).view(np.float32)
    arrays = {
        "e4m3fn": StoredArray(("codes",), BYTES, "float8_e4m3fn"),
        "e4m3fnuz": StoredArray(("codes",), BYTES, "float8_e4m3fnuz"),
        "scales": StoredArray(("codes",), BYTES, "float8_e8m0fnu"),
        "fp4": StoredArray(("few",), BYTES[:16], "float4_e2m1fn"),
        "bf16": StoredArray(("all",), np.arange(65536, dtype=np.uint16), "bfloat16"),
        "doubles": StoredArray(("six",), doubles, "float64"),
        "singles": StoredArray(("five",), singles, "float32"),
        "ints": StoredArray(("two",), np.array([-(2**63), 2**63 - 1]), "int64"),
        "none": StoredArray(("six", "nothing"), np.zeros((6, 0), np.int32), "int32"),
        "bytes": StoredArray(("codes",), BYTES, "uint8"),
    }
    return Golden(arrays, {"name": "bits", "count": 3, "share": 0.1, "empty": ""})


def assert_same(a: Golden, b: Golden) -> None:
    assert list(a.arrays) == list(b.arrays)
    for name, array in a.arrays.items():
        other = b.arrays[name]
        assert (array.dims, array.logical_dtype, array.values.dtype) == (
            other.dims,
            other.logical_dtype,
            other.values.dtype,
        )
        assert array.values.shape == other.values.shape, name
        assert array.values.tobytes() == other.values.tobytes(), name


def test_every_bit_pattern_comes_back(tmp_path: Path) -> None:
    golden = every_bit_pattern()
    save_golden(tmp_path / "bits.nc", golden)
    back = load_golden(tmp_path / "bits.nc")
    assert sorted(back.arrays) == sorted(golden.arrays)
    assert_same(golden, Golden({name: back.arrays[name] for name in golden.arrays}, back.attributes))
    assert {name: back.attributes[name] for name in golden.attributes} == golden.attributes
    assert [path.name for path in tmp_path.iterdir()] == ["bits.nc"]


def test_xarray_reads_it_unmasked_even_with_its_defaults(tmp_path: Path) -> None:
    golden = every_bit_pattern()
    save_golden(tmp_path / "bits.nc", golden)
    with xr.open_dataset(tmp_path / "bits.nc", engine="h5netcdf") as dataset:
        for name, array in golden.arrays.items():
            assert dataset[name].dtype == array.values.dtype, name
            assert dataset[name].dims == array.dims
            assert dataset[name].values.tobytes() == array.values.tobytes(), name
            assert dataset[name].attrs == {"logical_dtype": array.logical_dtype}


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e8m0fnu", "float4_e2m1fn", "bfloat16"])
def test_values_of_every_code_are_those_of_ml_dtypes(name: str) -> None:
    if LOGICAL[name].storage == "uint16":
        bits = np.arange(65536, dtype=np.uint16)
    else:
        bits = BYTES[:16] if name == "float4_e2m1fn" else BYTES
    with np.errstate(invalid="ignore"):
        theirs = bits.view(np.dtype(getattr(ml_dtypes, name))).astype(np.float64)
    ours = plain_values(StoredArray(("codes",), bits, name))
    np.testing.assert_array_equal(ours, theirs)
    number = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(ours[number]), np.signbit(theirs[number]))


def test_hash_is_of_what_arrays_say() -> None:
    """Order of the arrays, byte order and memory layout don't matter; name, dtype, shape and any bit do."""
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    array = StoredArray(("a", "b"), values, "int32")
    same = [
        {"y": array, "x": array},
        {"x": replace(array, values=values.astype(">i4")), "y": array},
        {"x": replace(array, values=np.asfortranarray(values)), "y": array},
    ]
    reference = content_hash({"x": array, "y": array})
    assert {content_hash(arrays) for arrays in same} == {reference}
    other = values.copy()
    other[1, 2] ^= 1
    zero = StoredArray(("a",), np.zeros(1), "float64")
    changed = [
        {"x": array, "z": array},
        {"x": array},
        {"x": replace(array, values=other), "y": array},
        {"x": replace(array, values=values.reshape(3, 2)), "y": array},
        {"x": replace(array, logical_dtype="float32"), "y": array},
    ]
    hashes = {content_hash(arrays) for arrays in changed} | {reference}
    assert len(hashes) == len(changed) + 1
    assert array_hash("x", zero) != array_hash("x", replace(zero, values=-zero.values))


def test_hash_is_pinned() -> None:
    """Committed manifests depend on it, so it can't change unnoticed."""
    array = StoredArray(("codes",), BYTES, "float8_e4m3fn")
    assert content_hash({"a": array}) == "f94250dc5d667b3a2f49ec4ac10d21743c1659a1d619d93e75428f1265cc4b46"


def flip_one_bit(path: Path, name: str, at: tuple[int, ...], bit: int = 0) -> None:
    """Change one stored bit in place, as a bad disk would, with the file's structure left whole."""
    with h5py.File(path, "r+") as file:
        values = file[name][...]
        bits = values.view(f"u{values.itemsize}")
        bits[at] ^= np.asarray(1 << bit, bits.dtype)
        file[name][...] = values


@pytest.mark.parametrize("name", ["e4m3fn", "bf16", "doubles", "ints"])
def test_a_flipped_bit_is_not_loaded(name: str, tmp_path: Path) -> None:
    save_golden(tmp_path / "bits.nc", every_bit_pattern())
    flip_one_bit(tmp_path / "bits.nc", name, (1,))
    with pytest.raises(CaseFileError, match=r"damaged: its arrays do not match its content_sha256"):
        load_golden(tmp_path / "bits.nc")


def test_wrong_storage_is_named() -> None:
    with pytest.raises(ValueError, match=r"`a` should hold bfloat16 as uint16, got uint8"):
        check_storage("a", StoredArray(("codes",), BYTES, "bfloat16"))
    with pytest.raises(ValueError, match=r"`a` should have a logical_dtype of .*, got 'float6'"):
        check_storage("a", StoredArray(("codes",), BYTES, "float6"))


@pytest.mark.parametrize("name", PRESETS)
def test_conventions_come_back_from_json(name: str) -> None:
    conventions = PRESETS[name].conventions
    for record in (conventions, *(flipped for _, _, flipped in flips(conventions))):
        assert conventions_from_json(conventions_to_json(record)) == record


def test_geometry_comes_back_from_json() -> None:
    geometry = Geometry(heads=3, page_size=7, compress_ratio=1, topk=9)
    assert geometry_from_json(geometry_to_json(geometry)) == geometry


def test_bad_json_is_named() -> None:
    text = conventions_to_json(PRESETS["sglang-v4-fp8"].conventions)
    for bad, message in (
        ("{", "`conventions` should be JSON"),
        ("[1]", "`conventions` should be a JSON object, got list"),
        ("{}", "`conventions` should hold the fields of Conventions"),
        (text.replace('"relu"', '"gelu"'), "`conventions` should hold the fields of Conventions: .*gelu"),
        (text.replace('"interleaved"', '"diagonal"'), r"`Conventions\(rope_pairing=...\)` should be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            conventions_from_json(bad)
    with pytest.raises(ValueError, match="`geometry` should hold the fields of Geometry"):
        geometry_from_json('{"head": 4}')

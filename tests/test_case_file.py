"""Case files: what is saved comes back, and nothing else is taken for a case."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from dsa_crosscheck.fixtures.captured import load_captured
from dsa_crosscheck.fixtures.case_file import CaseFileError, load_case, load_provenance, save_case
from dsa_crosscheck.fixtures.cases import CASES, build_case
from dsa_crosscheck.fixtures.netcdf import content_digest, read_arrays, write_arrays
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.inputs import Inputs


def assert_same(a: Inputs, b: Inputs) -> None:
    for spec in fields(Inputs):
        left, right = getattr(a, spec.name), getattr(b, spec.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, spec.name
            assert left.shape == right.shape, spec.name
            assert left.tobytes() == right.tobytes(), spec.name
        else:
            assert left == right, spec.name


@pytest.mark.parametrize("name", CASES)
def test_round_trip_of_every_case(name: str, tmp_path: Path) -> None:
    inputs = build_case(name, context=300, rows=3, seed=9)
    save_case(tmp_path / "case.nc", inputs, {"case": name, "seed": 9})
    assert_same(load_case(tmp_path / "case.nc"), inputs)
    assert load_provenance(tmp_path / "case.nc") == {"case": name, "seed": 9}
    assert [file.name for file in tmp_path.iterdir()] == ["case.nc"]


def test_round_trip_without_keys_or_pooling(tmp_path: Path) -> None:
    for inputs in (
        build_case("gaussian", context=3, rows=2, seed=0),
        build_case("gaussian", context=3, rows=2, seed=0, geometry=Geometry(compress_ratio=1)),
    ):
        save_case(tmp_path / "case.nc", inputs)
        assert_same(load_case(tmp_path / "case.nc"), inputs)


def test_signed_zeros_and_small_numbers_survive(tmp_path: Path) -> None:
    inputs = build_case("gaussian", context=64, rows=2, seed=0)
    query = inputs.query.copy()
    query[0, 0, :3] = [-0.0, 2.0**-133, -(2.0**-126)]
    pooled = inputs.pooled.copy()
    pooled[0, :3] = [-0.0, 1e-45, np.finfo(np.float32).max]
    changed = replace(inputs, query=query, pooled=pooled)
    save_case(tmp_path / "case.nc", changed)
    assert_same(load_case(tmp_path / "case.nc"), changed)


def test_layout_of_the_file(tmp_path: Path) -> None:
    inputs = build_case("gaussian", context=300, rows=3, seed=9)
    save_case(tmp_path / "case.nc", inputs, {"case": "gaussian"})
    with xr.open_dataset(tmp_path / "case.nc", engine="h5netcdf", mask_and_scale=False) as dataset:
        assert dataset["query"].dims == ("rows", "heads", "head_dim")
        assert dataset["query"].dtype == np.uint16
        assert dataset["query"].attrs["logical_dtype"] == "bfloat16"
        assert dataset["pooled"].dtype == np.float32
        assert dataset.attrs["geometry_page_size"] == 64
        assert dataset.attrs["provenance_case"] == "gaussian"
        assert not any("_FillValue" in variable.attrs for variable in dataset.variables.values())


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "case.nc"
    inputs = build_case("gaussian", context=64, rows=2, seed=0)
    save_case(path, inputs)

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(xr.Dataset, "dump_to_store", fail)
    with pytest.raises(OSError, match="disk full"):
        save_case(path, build_case("gaussian", context=64, rows=2, seed=1))
    assert_same(load_case(path), inputs)
    assert [file.name for file in tmp_path.iterdir()] == ["case.nc"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_case(tmp_path / "none.nc")


@pytest.mark.parametrize("content", [b"", b"not a case", b"\x89HDF\r\n\x1a\n" + bytes(200)])
def test_foreign_bytes(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "case.nc").write_bytes(content)
    with pytest.raises(CaseFileError, match="should be a netCDF-4 case file"):
        load_case(tmp_path / "case.nc")


@pytest.mark.parametrize("keep", [0.3, 0.7, 0.99])
def test_truncated_file(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "case.nc"
    save_case(path, build_case("gaussian", context=300, rows=3, seed=9))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(CaseFileError):
        load_case(path)


def test_changed_value(tmp_path: Path) -> None:
    path = tmp_path / "case.nc"
    save_case(path, build_case("gaussian", context=300, rows=3, seed=9))
    with h5py.File(path, "r+") as file:
        file["gate"][0, 0] ^= 1
    with pytest.raises(CaseFileError, match="is damaged"):
        load_case(path)


def test_other_kinds_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "case.nc"
    xr.Dataset({"x": ("n", np.arange(3))}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(CaseFileError, match="should hold 'dsa-crosscheck inputs', got kind None"):
        load_case(path)
    save_case(path, build_case("gaussian", context=64, rows=2, seed=0))
    with pytest.raises(CaseFileError, match="should hold 'dsa-crosscheck captured text'"):
        load_captured(path)
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(CaseFileError, match="should have format_version 1, got 99"):
        load_case(path)


def rewritten(path: Path, **changes: np.ndarray | None) -> None:
    """The case at ``path`` with arrays replaced or left out, and a digest that fits."""
    arrays, attributes = read_arrays(path, "dsa-crosscheck inputs")
    with xr.open_dataset(path, engine="h5netcdf", decode_cf=False) as dataset:
        dims = {name: tuple(map(str, dataset[name].dims)) for name in arrays}
    changed = {**arrays, **changes}
    kept = {name: (dims.get(name, ("extra",)), values) for name, values in changed.items() if values is not None}
    write_arrays(path, "dsa-crosscheck inputs", kept, attributes)


def test_invalid_contents(tmp_path: Path) -> None:
    path = tmp_path / "case.nc"
    inputs = build_case("gaussian", context=300, rows=3, seed=9)
    save_case(path, inputs)
    rewritten(path, gate=None)
    with pytest.raises(CaseFileError, match=r"should hold the arrays of Inputs: missing \['gate'\]"):
        load_case(path)
    save_case(path, inputs)
    rewritten(path, surplus=np.zeros(2))
    with pytest.raises(CaseFileError, match="should hold the arrays of Inputs"):
        load_case(path)
    save_case(path, inputs)
    rewritten(path, slots=np.zeros_like(inputs.slots))
    with pytest.raises(CaseFileError, match=r"does not hold valid inputs: `Inputs\(slots=\.\.\.\)`"):
        load_case(path)
    save_case(path, inputs)
    with h5py.File(path, "r+") as file:
        del file.attrs["geometry_heads"]
    with pytest.raises(CaseFileError, match="should have the attribute 'geometry_heads'"):
        load_case(path)


def test_digest_depends_on_name_type_shape_and_values() -> None:
    x = np.arange(6, dtype=np.int64)
    digests = {
        content_digest({"a": x}),
        content_digest({"b": x}),
        content_digest({"a": x.astype(np.int32)}),
        content_digest({"a": x.reshape(2, 3)}),
        content_digest({"a": x + 1}),
    }
    assert len(digests) == 5

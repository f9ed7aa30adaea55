"""``dsa-crosscheck study ordering``: which orders are of no consequence, and that the study can tell."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_cases
import xarray as xr

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.studies import ordering, output
from dsa_crosscheck.compare.studies.ordering import FORMATS, NAMED_ORDERS, ORDERS
from dsa_crosscheck.compare.studies.stored_order import StoredOrder
from dsa_crosscheck.reference.lanes import lane_permutation, random_order
from dsa_crosscheck.reference.models import model
from dsa_crosscheck.reference.trace import Trace

PER_TOKEN = ("bf16", "fp8", "fp8-pow2")
MOVING = tuple(order for order in ORDERS if order != "lane-major")


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    args = argparse.Namespace(case="gaussian", context=1024, rows=6, topk=32, seed=3)
    return ordering.run(args)


def test_every_format_order_and_side_is_measured(dataset: xr.Dataset) -> None:
    assert dict(dataset.sizes) == {"format": 4, "order": 5, "side": 3}
    assert set(dataset.data_vars) == set(ordering.MEANING)
    assert all(np.isfinite(values).all() for values in dataset.data_vars.values())
    assert all(variable.attrs["long_name"] for variable in dataset.data_vars.values())


def test_an_order_that_both_sides_share_is_equivalent_where_a_vector_has_at_most_one_scale(dataset: xr.Dataset) -> None:
    same = dataset.sel(format=list(PER_TOKEN))
    assert (same.dots_equal == 1).all()
    assert (same.codes_equal == 1).all()
    assert (same.scales_changed == 0).all()
    assert (same.overlap.sel(side="both") == 1).all()
    # The float64 scorer adds in the stored order: its scores are equal up to float64 rounding.
    assert (same.score_change < 1e-13).all()
    assert (same.kernel_change < 1).all()
    assert (same.kernel_change.sel(order=list(MOVING)) > 0).all()


def test_fp4_is_not_equivalent_when_the_order_breaks_its_groups(dataset: xr.Dataset) -> None:
    fp4 = dataset.sel(format="fp4")
    moved = fp4.sel(order=list(MOVING))
    assert (moved.scales_changed > 0.1 * moved.scales).all()
    assert (moved.dots_equal < 1).all()
    assert (moved.codes_equal < 1).all()
    assert (moved.overlap.sel(side="both") < 1).all()
    assert (moved.overlap.sel(side="both") > 0.8).all()
    assert (fp4.sel(order="lane-major").scales_changed == 0).all()


def test_one_side_alone_in_another_order_is_chance(dataset: xr.Dataset) -> None:
    one = dataset.sel(order=list(MOVING), side=["key", "query"])
    chance = dataset.attrs["chance_overlap"]
    for overlap in (one.overlap, one.kernel_overlap):
        assert (abs(overlap - chance) < 0.15).all()
        assert float(overlap.mean()) == pytest.approx(chance, abs=0.05)


def test_kernels_stay_within_the_bound_in_every_order(dataset: xr.Dataset) -> None:
    assert (dataset.kernel_error <= 1).all()
    assert (dataset.kernel_error > 0).all()
    assert (dataset.kernel_overlap.sel(side="both") == 1).sel(format=list(PER_TOKEN)).all()


def test_chance_is_k_over_the_keys_of_the_rows_that_are_searched(dataset: xr.Dataset) -> None:
    # Rows see 256, 1, 65, 1 and 0 keys, and the last half of 256; 32 are selected.
    assert dataset.attrs["searched_rows"] == 3
    assert dataset.attrs["chance_overlap"] == pytest.approx((32 / 256 + 32 / 65 + 32 / 128) / 3, rel=0.02)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("order", NAMED_ORDERS)
def test_a_named_order_stores_what_the_convention_of_that_name_stores(kind: str, order: str) -> None:
    inputs = small_cases.mixed()
    c = replace(FORMATS[kind], lane_order_key=order, lane_order_query="strided")
    key, query = (lane_permutation(name, 128) for name in (order, "strided"))
    stored = StoredOrder(Setup(inputs, FORMATS[kind], model("ieee-fp32")), key, query)
    trace = Trace(inputs, c)
    cache, codes, weights = stored.scorer_input
    np.testing.assert_array_equal(cache, trace.cache)
    np.testing.assert_array_equal(codes, trace.codes)
    np.testing.assert_array_equal(weights, trace.weights.astype(np.float32))
    np.testing.assert_allclose(stored.judged[0].values, trace.scores.values, rtol=1e-5, atol=1e-6)


def test_an_order_of_whole_groups_leaves_fp4_as_it_was() -> None:
    setup = Setup(small_cases.mixed(), FORMATS["fp4"], model("ieee-fp32"))
    groups = np.arange(128).reshape(4, 32)
    inside = np.concatenate([group[random_order(32, i)] for i, group in enumerate(groups)])
    for order in (groups[[2, 0, 3, 1]].reshape(-1), inside):
        before, after = StoredOrder(setup, np.arange(128), np.arange(128)), StoredOrder(setup, order, order)
        np.testing.assert_array_equal(after.keys.codes, before.keys.codes[:, order])
        np.testing.assert_array_equal(after.dots(2, 2, 5), before.dots(2, 2, 5))


def test_exact_dots_notice_one_code_of_one_key() -> None:
    setup = Setup(small_cases.mixed(), FORMATS["fp8"], model("ieee-fp32"))
    natural = np.arange(128)
    swapped = natural.copy()
    swapped[[3, 4]] = 4, 3
    before = StoredOrder(setup, natural, natural).dots(1, 4, 9)
    assert (StoredOrder(setup, swapped, natural).dots(1, 4, 9) != before).all()
    np.testing.assert_array_equal(StoredOrder(setup, swapped, swapped).dots(1, 4, 9), before)


def test_table_fits_and_says_which_are_equivalent(dataset: xr.Dataset) -> None:
    text = ordering.render(dataset)
    assert max(map(len, text.split("\n"))) <= 100
    assert "…" not in text
    assert f"fp8: equivalent when shared: {', '.join(ORDERS)}" in text
    assert "fp4: equivalent when shared: lane-major\n    not: strided, sequency, bit-reversed, random" in text
    assert sum(line.split()[:1] == ["fp4"] for line in text.split("\n")) == len(ORDERS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, dataset: xr.Dataset) -> None:
    monkeypatch.setattr(ordering, "run", lambda args: dataset)


@pytest.mark.usefixtures("quick")
def test_command_prints_the_table_and_writes_both_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dataset: xr.Dataset
) -> None:
    out, plain = tmp_path / "o.nc", tmp_path / "o.json"
    assert main(["study", "ordering", "--out", str(out), "--json", str(plain)]) == 0
    assert capsys.readouterr().out == ordering.render(dataset) + "\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.json", "o.nc"]
    with xr.open_dataset(out, engine="h5netcdf") as read:
        xr.testing.assert_identical(read.load(), dataset)
        assert ordering.render(read) == ordering.render(dataset)
    record = json.loads(plain.read_text())
    assert record["data_vars"]["overlap"]["data"] == dataset.overlap.values.tolist()
    assert record["attrs"]["topk"] == 32


@pytest.mark.usefixtures("quick")
def test_a_path_that_is_no_file_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "ordering", "--out", str(tmp_path)]) == 2
    assert "`--out` should be the path of a file in an existing folder" in capsys.readouterr().err
    assert main(["study", "ordering", "--json", str(tmp_path / "no" / "o.json")]) == 2


def test_sizes_that_leave_no_choice_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "ordering", "--context", "64", "--topk", "16"]) == 2
    assert "`--context` should let a row see more than k=16 keys, got 64" in capsys.readouterr().err
    assert main(["study", "ordering", "--case", "none"]) == 2


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, dataset: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "o.nc"
    path.write_text("old")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.raises(OSError, match="disk full"):
        output.write_netcdf(path, dataset)
    assert [p.name for p in tmp_path.iterdir()] == ["o.nc"]
    assert path.read_text() == "old"


def test_nan_is_null_in_json(tmp_path: Path) -> None:
    output.write_json(tmp_path / "x.json", xr.Dataset({"a": ("n", np.array([1.0, np.nan]))}))
    assert json.loads((tmp_path / "x.json").read_text())["data_vars"]["a"]["data"] == [1.0, None]

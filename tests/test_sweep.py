"""The sweep runner: stopping, resuming, failing and dying cells, processes, and a real cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweep_cells
import xarray as xr
from sweep_cells import Cell, cells, measure, runs, template

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.studies.cell_store import CellStore, NetcdfStore, cell_id
from dsa_crosscheck.compare.studies.sweep import ATTEMPTS, run_cells
from dsa_crosscheck.compare.studies.sweep_options import measured_cells
from dsa_crosscheck.compare.studies.zarr_store import ZarrStore

ALONG = ("family", "seed")


def new_store(kind: str, folder: Path) -> CellStore:
    if kind == "zarr":
        pytest.importorskip("zarr")
        pytest.importorskip("dask")
        return ZarrStore(folder, "test", template(), ALONG)
    return NetcdfStore(folder, "test")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def assert_same_as_serial(store: CellStore, wanted: list[Cell]) -> None:
    """Every cell once, with the very bits that a call here gives."""
    found = list(store.datasets(wanted))
    assert len(found) == len(wanted)
    for cell, got in zip(wanted, found, strict=True):
        expected = measure(cell)
        assert (got.family.item(), got.seed.item()) == (cell.family, cell.seed)
        np.testing.assert_array_equal(got.value.values, expected.value.values)
        if "rare" in expected:
            np.testing.assert_array_equal(got.rare.values, expected.rare.values)
        else:
            assert "rare" not in got or got.rare.isnull().all()


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_serial_run_keeps_every_cell(kind: str, tmp_path: Path, notes: Path) -> None:
    store, wanted = new_store(kind, tmp_path / "sweep"), cells(notes)
    assert run_cells(wanted, measure, store) == []
    assert_same_as_serial(store, wanted)


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_a_stopped_sweep_goes_on_where_it_was(kind: str, tmp_path: Path, notes: Path) -> None:
    wanted = cells(notes)

    def until_the_fifth(cell: Cell) -> xr.Dataset:
        if cell == wanted[4]:
            raise KeyboardInterrupt
        return measure(cell)

    with pytest.raises(KeyboardInterrupt):
        run_cells(wanted, until_the_fifth, new_store(kind, tmp_path / "sweep"))
    store = new_store(kind, tmp_path / "sweep")
    assert [store.is_done(cell) for cell in wanted] == [True] * 4 + [False] * 8
    assert len(list(store.datasets(wanted))) == 4
    assert run_cells(wanted, measure, store) == []
    assert [runs(notes, cell) for cell in wanted] == [1] * 12
    assert run_cells(wanted, measure, store) == []
    assert [runs(notes, cell) for cell in wanted] == [1] * 12
    assert_same_as_serial(store, wanted)


def test_a_failed_cell_is_recorded_and_tried_again(tmp_path: Path, notes: Path) -> None:
    store = NetcdfStore(tmp_path / "sweep", "test")
    wanted = cells(notes, {("alpha", 2): "raises"})
    failures = run_cells(wanted, measure, store)
    assert [failure.cell for failure in failures] == [repr(wanted[2])]
    assert "ArithmeticError: seed 2 can't be measured" in failures[0].traceback
    assert 'sweep_cells.py", line' in failures[0].traceback
    assert sum(store.is_done(cell) for cell in wanted) == 11
    good = sweep_cells.Cell("alpha", 2, str(notes))
    assert run_cells(wanted, lambda cell: measure(good if cell == wanted[2] else cell), store) == []
    assert runs(notes, wanted[2]) == 2
    assert [runs(notes, cell) for cell in wanted[3:]] == [1] * 9


def test_processes_survive_dying_and_raising_cells(tmp_path: Path, notes: Path) -> None:
    """One cell dies at first, one always, one raises; the other nine are there, whoever ran beside them."""
    moods = {("alpha", 1): "kills once", ("alpha", 4): "kills", ("beta", 0): "raises"}
    store, wanted = NetcdfStore(tmp_path / "sweep", "test"), cells(notes, moods)
    failures = run_cells(wanted, measure, store, workers=2)
    assert [failure.cell for failure in failures] == [repr(wanted[4]), repr(wanted[6])]
    assert f"died {ATTEMPTS} times" in failures[0].traceback
    assert "ArithmeticError" in failures[1].traceback
    assert runs(notes, wanted[4]) == ATTEMPTS
    assert_same_as_serial(store, [cell for cell in wanted if cell.mood in ("fine", "kills once")])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as running:
        yield running


def test_cluster_loses_nothing_when_a_worker_is_killed(tmp_path: Path, notes: Path, cluster: Any) -> None:
    """A worker is killed by SIGKILL in mid-run, from inside a cell; both its cells and the sweep go on."""
    moods = {("alpha", seed): "slow" for seed in range(6)} | {("beta", 2): "kills once", ("beta", 3): "raises"}
    store, wanted = new_store("zarr", tmp_path / "sweep"), cells(notes, moods)
    workers = set(cluster.scheduler.workers)
    failures = run_cells(wanted, measure, store, scheduler=cluster.scheduler_address)
    assert [failure.cell for failure in failures] == [repr(wanted[9])]
    assert "ArithmeticError" in failures[0].traceback
    assert runs(notes, wanted[8]) == 2
    assert set(cluster.scheduler.workers) != workers
    assert isinstance(store, ZarrStore)
    good = [cell for cell in wanted if cell.mood != "raises"]
    assert len(list((tmp_path / "sweep" / "done").iterdir())) == len(good) == 11
    assert_same_as_serial(store, good)
    with store.open() as whole:
        assert dict(whole.sizes) == dict(template().sizes)
        assert int(whole.value.notnull().sum()) == 11 * sweep_cells.COLUMNS
        assert whole.value.sel(family="beta", seed=3).isnull().all()


@pytest.mark.slow
def test_a_cell_that_always_kills_its_cluster_worker_is_recorded(tmp_path: Path, notes: Path, cluster: Any) -> None:
    store, wanted = NetcdfStore(tmp_path / "sweep", "test"), cells(notes, {("alpha", 0): "kills"})[:3]
    failures = run_cells(wanted, measure, store, scheduler=cluster.scheduler_address)
    assert [failure.cell for failure in failures] == [repr(wanted[0])]
    assert "KilledWorker" in failures[0].traceback
    assert_same_as_serial(store, wanted[1:])


def test_progress_counts_cells_and_failures(tmp_path: Path, notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cells(cells(notes, {("beta", 5): "raises"}), measure, NetcdfStore(tmp_path / "sweep", "test"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "12/12" in shown.err
    assert "1 failed" in shown.err


def test_arguments_are_checked(tmp_path: Path, notes: Path) -> None:
    store, wanted = NetcdfStore(tmp_path / "sweep", "test"), cells(notes)
    with pytest.raises(ValueError, match=r"`run_cells\(workers=...\)` should be at least 1, got 0"):
        run_cells(wanted, measure, store, workers=0)
    with pytest.raises(ValueError, match=r"should be left out with a scheduler, got 2"):
        run_cells(wanted, measure, store, workers=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="each cell once"):
        run_cells([wanted[0], wanted[0]], measure, store)


@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_another_sweeps_folder_is_refused(kind: str, tmp_path: Path) -> None:
    new_store(kind, tmp_path)
    with pytest.raises(ValueError, match="should be new or hold the sweep"):
        NetcdfStore(tmp_path, "other")


def test_zarr_store_refuses_what_is_not_a_cell(tmp_path: Path, notes: Path) -> None:
    pytest.importorskip("zarr")
    pytest.importorskip("dask")
    store, cell = ZarrStore(tmp_path / "sweep", "test", template(), ALONG), cells(notes)[0]
    good = measure(cell)
    with pytest.raises(ValueError, match=r"should have one known family, got \['gamma'\]"):
        store.put(cell, good.assign_coords(family=["gamma"]))
    with pytest.raises(ValueError, match="should have every column"):
        store.put(cell, good.isel(column=[0, 1]))
    with pytest.raises(ValueError, match="got no"):
        store.put(cell, good.isel(seed=0))
    assert not store.is_done(cell)
    with pytest.raises(ValueError, match=r"should name dimensions of the template, got \['time'\]"):
        ZarrStore(tmp_path / "a", "test", template(), ("time",))
    whole = template().assign(value=template().value.fillna(0).astype(int))
    with pytest.raises(ValueError, match=r"should have floating variables, got others for \['value'\]"):
        ZarrStore(tmp_path / "b", "test", whole, ALONG)


def test_cells_of_one_zarr_store_share_no_chunk(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("dask")
    store = ZarrStore(tmp_path / "sweep", "test", template(), ALONG)
    assert zarr.open_group(store.path)["value"].chunks == (1, 1, sweep_cells.COLUMNS)


def test_ids_tell_cells_apart(notes: Path) -> None:
    assert len({cell_id(cell) for cell in cells(notes)}) == 12
    assert cell_id(cells(notes)[3]) == cell_id(cells(notes)[3])


def test_processes_run_at_the_same_time(tmp_path: Path, notes: Path) -> None:
    """Four cells that sleep 0.3 s begin together, not one after another."""
    wanted = [Cell(c.family, c.seed, c.notes, "slow") for c in cells(notes)]
    run_cells(wanted, measure, NetcdfStore(tmp_path / "sweep", "test"), workers=2)
    by_process: dict[str, list[int]] = {}
    for path in notes.iterdir():
        process, begun = path.name.split("-")[2:]
        by_process.setdefault(process, []).append(int(begun))
    first, second = (sorted(times) for times in by_process.values())
    both = [time for time in second if first[0] < time < first[-1]]
    assert len(both) >= 3


STUDY = ["study", "precision", "--families", "gaussian", "--contexts", "2048", "--topk", "128", "--seeds", "2"]
SMALL = [*STUDY, "--rows", "2", "--formats", "exact", "fp8-fp32-scale"]


def read(path: Path) -> xr.Dataset:
    return xr.load_dataset(path, engine="h5netcdf")


def assert_same_values(first: xr.Dataset, second: xr.Dataset) -> None:
    assert set(first.data_vars) == set(second.data_vars)
    for name in first.data_vars:
        np.testing.assert_array_equal(first[name].values, second[name].values, err_msg=str(name))


def test_a_study_runs_as_a_sweep(tmp_path: Path) -> None:
    """In this process, kept in a folder, and out of that folder again without measuring: one result."""
    plain, kept, again = (tmp_path / f"{name}.nc" for name in ("plain", "kept", "again"))
    store = ["--store", str(tmp_path / "store")]
    assert main([*SMALL, "--out", str(plain)]) == 0
    assert main([*SMALL, *store, "--out", str(kept)]) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "done").iterdir()}
    assert len(before) == 2
    assert main([*SMALL, *store, "--out", str(again)]) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store" / "done").iterdir()} == before
    assert_same_values(read(plain), read(kept))
    assert_same_values(read(plain), read(again))


def test_a_study_on_a_cluster_gives_the_serial_values(tmp_path: Path, cluster: Any) -> None:
    """But for the last bits of the noise's power, whose sums depend on the threads that a process has to itself."""
    serial, spread = tmp_path / "serial.nc", tmp_path / "spread.nc"
    on_cluster = ["--scheduler", cluster.scheduler_address, "--store", str(tmp_path / "store")]
    assert main([*SMALL, "--out", str(serial)]) == 0
    assert main([*SMALL, *on_cluster, "--out", str(spread)]) == 0
    assert (tmp_path / "store" / "data.zarr").is_dir()
    first, second = read(serial), read(spread)
    assert_same_values(first.drop_vars("power_share"), second.drop_vars("power_share"))
    np.testing.assert_allclose(first.power_share.values, second.power_share.values, rtol=1e-12, atol=1e-14)


def test_failed_cells_are_told_and_left_out(tmp_path: Path, notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(store=tmp_path / "store", workers=1, scheduler=None)
    wanted = cells(notes, {("alpha", 0): "raises"})
    found = list(measured_cells(wanted, measure, template(), ALONG, args))
    assert len(found) == 11
    told = capsys.readouterr().err
    assert "ArithmeticError: seed 0 can't be measured" in told
    assert "1 cells failed, see" in told
    with pytest.raises(ValueError, match=r"every cell failed, the first one so:\nTraceback"):
        list(measured_cells(wanted[:1], measure, template(), ALONG, args))


def test_a_scheduler_needs_a_store(tmp_path: Path, notes: Path) -> None:
    args = argparse.Namespace(store=None, workers=1, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="`--store` should name a folder"):
        list(measured_cells(cells(notes), measure, template(), ALONG, args))

"""``dsa-crosscheck study memory``: predictions against measurement, the 8.25 GiB, and what fits."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.studies import memory
from dsa_crosscheck.compare.studies.allocation_tracker import AllocationTracker
from dsa_crosscheck.compare.studies.budget import largest_context, largest_rows, needed, parse_bytes
from dsa_crosscheck.compare.studies.device_results import memory_records
from dsa_crosscheck.compare.studies.formats import FORMATS, conventions_of
from dsa_crosscheck.compare.studies.memory_measured import measured
from dsa_crosscheck.compare.studies.memory_text import size
from dsa_crosscheck.compare.studies.read_path import ReadSizes, Request, footprint, source_line
from dsa_crosscheck.cuda_impl.ops.score import paged_scores
from dsa_crosscheck.cuda_impl.unfused import pipeline
from dsa_crosscheck.cuda_impl.unfused.cache import page_layout
from dsa_crosscheck.reference.geometry import Geometry

GEOMETRY = Geometry()
PATHS = {path.name: path for path in memory.PATHS}
ALL = [(path.name, name) for path in memory.PATHS for name in path.formats]
RUNNABLE = [(path, name) for path, name in ALL if path in ("unfused", "reference", "transformers")]
HEAD_PRODUCT = 6144 * 5632 * 64 * 4


def sizes(rows: int, keys: int, format_name: str) -> ReadSizes:
    return ReadSizes(rows, keys, GEOMETRY, FORMATS[format_name])


def options(tmp_path: Path, **changed: object) -> argparse.Namespace:
    return argparse.Namespace(**{"context": 22528, "rows": 6144, "budget": None, "results": tmp_path} | changed)


@pytest.mark.parametrize(("rows", "keys"), [(6144, 5632), (1024, 32768), (64, 262144), (16, 700), (1, 5000)])
@pytest.mark.parametrize(("path", "format_name"), RUNNABLE)
def test_prediction_is_within_2_percent_of_measurement(path: str, format_name: str, rows: int, keys: int) -> None:
    if path == "transformers":
        pytest.importorskip("transformers")
    s = sizes(rows, keys, format_name)
    got = measured(path, format_name, s)
    assert got is not None
    expected = footprint(PATHS[path].requests(s))
    assert expected.peak == pytest.approx(got.peak, rel=0.02)
    if path != "reference":  # XLA reports the sum of a block's temporaries
        assert expected.largest == got.largest


@pytest.mark.parametrize("format_name", [name for path, name in RUNNABLE if path == "unfused"])
def test_the_predicted_line_is_the_line_that_asks(format_name: str) -> None:
    s = sizes(300, 1280, format_name)
    got = measured("unfused", format_name, s)
    assert got is not None
    assert footprint(PATHS["unfused"].requests(s)).sources == got.sources


@pytest.mark.parametrize("format_name", ["bf16", "fp8-fp32-scale", "fp4-even"])
@pytest.mark.parametrize("path", ["unfused", "streaming"])
def test_prediction_holds_for_real_tensors(path: str, format_name: str) -> None:
    """The whole calls on real memory, argument checks and all."""
    s = sizes(48, 640, format_name)
    c = conventions_of(format_name, hadamard=True)
    layout = page_layout(c.key, GEOMETRY, c.page_order)
    query_bytes = c.query.record_bytes(128)
    if path == "streaming" and c.query.spec.bits == 8:
        query_bytes = 128  # the kernels have the query's scale in its weight
    arguments = (
        torch.zeros(s.rows, 64, query_bytes, dtype=torch.uint8),
        torch.ones(s.rows, 64),
        torch.zeros(s.pages, layout.page_bytes, dtype=torch.uint8),
        torch.arange(s.pages, dtype=torch.int32)[None],
        torch.zeros(s.rows, dtype=torch.int32),
        torch.full((s.rows,), s.keys, dtype=torch.int32),
    )
    with AllocationTracker() as tracker:
        if path == "streaming":
            paged_scores(*arguments, codec=c.key, page_size=64)
        else:
            pipeline.score(*arguments, conventions=c, geometry=GEOMETRY)
    expected = footprint(PATHS[path].requests(s))
    assert expected.peak == pytest.approx(tracker.peak, rel=0.02)
    assert (expected.largest, expected.sources[0]) == (tracker.largest, tracker.source)


def test_tracker_counts_what_is_held_once() -> None:
    with AllocationTracker() as tracker:
        a = torch.zeros(1000)
        assert tracker.peak == 4000
        b = a[:10].view(2, 5)  # no storage of its own
        a.add_(1)
        assert tracker.peak == 4000
        del a
        c = b + 1
        del b
        d = torch.zeros(900)
    assert tracker.peak == 4040
    assert tracker.largest == 4000
    assert tracker.source.startswith(f"{__name__}:")
    assert c.numel() + d.numel() == 910


def test_the_original_failure() -> None:
    assert HEAD_PRODUCT == 8.25 * 2**30
    s = sizes(6144, 22528 // 4, "fp8-fp32-scale")
    torch_path = footprint(PATHS["sglang-torch"].requests(s))
    assert torch_path.largest == HEAD_PRODUCT
    assert torch_path.names == ("gathered keys", "weighted product")
    library = footprint(PATHS["transformers"].requests(sizes(6144, 5632, "bf16")))
    assert (library.largest, library.names[0]) == (HEAD_PRODUCT, "head product")
    by_name = {request.name: request.bytes for request in PATHS["unfused"].requests(s)}
    assert by_name["head product"] == HEAD_PRODUCT
    assert footprint(PATHS["streaming"].requests(s)).largest == 6144 * 5632 * 4


def test_the_library_itself_asks_for_the_8_25_gib() -> None:
    pytest.importorskip("transformers")
    got = measured("transformers", "bf16", sizes(6144, 5632, "bf16"))
    assert got is not None
    assert (got.largest, got.names) == (HEAD_PRODUCT, ("6,144 x 64 x 5,632",))
    assert got.sources[0].startswith("transformers.models.deepseek_v4.modeling_deepseek_v4:")


def test_published_peaks_of_the_chunked_fallback() -> None:
    """One chunk of 1,024 rows at 128K tokens: 4.1 GiB of pages, 8 of keys, 4 of products, 8 of weighted ones."""
    requests = PATHS["sglang-torch-sm120"].requests(sizes(1024, 32768, "fp8-fp32-scale"))
    gib = [round(request.bytes / 2**30, 1) for request in requests[:4]]
    assert gib == [4.1, 8.0, 4.0, 8.0]
    # Rows past the chunk cost their scores, twice at the end, and nothing else.
    more = footprint(PATHS["sglang-torch-sm120"].requests(sizes(4096, 32768, "fp8-fp32-scale"))).peak
    assert more - footprint(requests).peak == 3072 * 32768 * 4


def test_triton_chunks_hold_at_most_256_mib_of_keys() -> None:
    for keys in (64, 5632, 32768, 262144):
        by_name = {r.name: r for r in PATHS["sglang-triton"].requests(sizes(6144, keys, "fp8-fp32-scale"))}
        held = by_name["gathered keys"]
        assert held.bytes <= 256 << 20
        assert held.shape[0] == 6144 or held.bytes + keys * 512 > 256 << 20


@pytest.mark.parametrize("budget", ["48GiB", "1GiB"])
@pytest.mark.parametrize(("path", "format_name"), ALL)
def test_budget_answers_fit_and_the_next_does_not(path: str, format_name: str, budget: str) -> None:
    limit, read, s = parse_bytes(budget), PATHS[path], sizes(1024, 32768, format_name)
    rows = largest_rows(read, s, limit)
    assert rows == 0 or needed(read, replace(s, rows=rows)) <= limit
    assert needed(read, replace(s, rows=rows + 1)) > limit
    tokens = largest_context(read, s, limit)
    assert tokens % 256 == 0
    assert tokens == 0 or needed(read, replace(s, keys=tokens // 4)) <= limit
    assert needed(read, replace(s, keys=tokens // 4 + 64)) > limit


def test_nothing_fits_a_budget_below_one_row() -> None:
    s = sizes(1, 32768, "bf16")
    assert largest_rows(PATHS["unfused"], s, 1 << 20) == 0
    assert largest_context(PATHS["unfused"], s, 1 << 10) == 0


@pytest.mark.parametrize(("text", "value"), [("48GiB", 48 << 30), ("1.5 MiB", 3 << 19), ("77", 77)])
def test_budgets_are_read(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["48GB", "-1GiB", "0", "", "GiB"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"`budget` should be a positive number of bytes such as 48GiB, got"):
        parse_bytes(text)


def test_lifetimes_make_the_peak() -> None:
    def tensor(name: str, elements: int, last: str | None = None) -> Request:
        return Request(name, "other", (elements,), 4, name, last)

    got = footprint([tensor("a", 10, "b"), tensor("b", 20, "c"), tensor("c", 20), tensor("d", 1)])
    assert got.peak == 4 * 40  # b and c, when a is gone
    assert (got.largest, got.names) == (80, ("b", "c"))
    with pytest.raises(ValueError, match=r"`Request\(last=...\)` of 'b' should name a later one, got 'a'"):
        footprint([tensor("a", 1), tensor("b", 1, "a")])
    with pytest.raises(ValueError, match="at least one request"):
        footprint([])


def test_a_model_of_other_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`source_line\(statement=...\)` should be on one line of paged_scores"):
        source_line(paged_scores, "scores = no_such_call(")
    with pytest.raises(ValueError, match=r"`ReadSizes\(keys=...\)` should be at least 1, got 0"):
        sizes(1, 0, "bf16")


def test_dataset_has_every_path_and_its_units(tmp_path: Path) -> None:
    dataset = memory.run(options(tmp_path, budget="48GiB"))
    assert list(zip(dataset.path.values, dataset.format.values, strict=True)) == ALL
    for name in memory.BYTES:
        assert dataset[name].attrs["units"] == "bytes"
    both = dataset.peak_measured.notnull()
    assert int(both.sum()) >= 6
    assert (np.abs(dataset.peak / dataset.peak_measured - 1)[both] < 0.02).all()
    assert dataset.peak_device.isnull().all()
    text = memory.render(dataset)
    assert max(len(line) for line in text.splitlines()) <= 110
    assert "…" not in text
    assert "6,144 rows x 5,632 keys x 64 heads x 4 bytes\n  = 8,858,370,048 bytes (8.25 GiB)" in text
    assert "budget 48.00 GiB" in text
    assert "budget" not in memory.render(memory.run(options(tmp_path)))


def test_device_records_stand_beside_the_prediction(tmp_path: Path) -> None:
    record = {"path": "cuda", "format": "bf16", "rows": 6144, "keys": 5632, "peak_bytes": 139000000, "largest_bytes": 1}
    other = record | {"rows": 1}
    content = {"device": "a GPU", "memory": [other, record]}
    (tmp_path / "memory.json").write_text(json.dumps(content))
    (tmp_path / "list.json").write_text("[]")
    dataset = memory.run(options(tmp_path))
    known = dataset.isel(path_format=dataset.peak_device.notnull().values)
    assert known.path.values.tolist() == ["streaming"]
    assert (known.peak_device.item(), known.device.item()) == (139000000, "a GPU")
    assert "measured device\n" in memory.render(dataset)
    assert "…" not in memory.render(dataset)

    for wrong in (record | {"rows": "6144"}, record | {"rows": 0}, {k: v for k, v in record.items() if k != "rows"}):
        (tmp_path / "memory.json").write_text(json.dumps(content | {"memory": [wrong]}))
        with pytest.raises(ValueError, match=r"`memory.json: memory\[0\].rows` should be"):
            memory_records(tmp_path)


RESULTS = Path(__file__).parent.parent / "docs" / "results"


def test_prediction_is_within_2_percent_of_what_a_gpu_allocated() -> None:
    recorded = memory_records(RESULTS)
    own = {name: path for path, name in memory.DEVICE_PATHS.items()}
    formats = {name: format_name for format_name, name in memory.DEVICE_FORMATS.items()}
    assert {record.path for record in recorded} == {"cuda", "unfused"}
    for record in recorded:
        s = sizes(record.rows, record.keys, formats.get(record.format, record.format))
        expected = footprint(PATHS[own.get(record.path, record.path)].requests(s))
        assert expected.peak == pytest.approx(record.peak_bytes, rel=0.02), record
        assert expected.largest == pytest.approx(record.largest_bytes, rel=0.02), record


def test_no_folder_means_no_records(tmp_path: Path) -> None:
    assert memory_records(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), "-"), (0, "-"), (5, "5 B"), (2**33, "8.00 GiB"), (2**20 * 512, "512 MiB")]
)
def test_sizes_as_text(value: float, text: str) -> None:
    assert size(value) == text


def test_command_writes_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "memory.nc"
    arguments = ["study", "memory", "--context", "2048", "--rows", "64", "--budget", "1GiB", "--results", str(tmp_path)]
    assert main([*arguments, "--out", str(out)]) == 0
    assert "context 2,048   keys 512   rows 64" in capsys.readouterr().out
    with xr.open_dataset(out, engine="h5netcdf") as dataset:
        assert dataset.attrs["budget"] == 2**30
        assert (dataset.budget_rows > 0).all()
    assert main(["study", "memory", "--context", "3"]) == 2
    assert main(["study", "memory", "--budget", "0GiB"]) == 2
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    assert (
        main(["study", "memory", "--budget", "48GiB", "--results", str(tmp_path), "--out", str(tmp_path / "page")]) == 0
    )
    html = (tmp_path / "page" / "index.html").read_text()
    assert "8,858,370,048 bytes (8.25 GiB): the largest request of transformers, sglang-torch." in html
    assert "What fits 48.00 GiB" in html
    assert main(["study", "memory", "--budget", "many"]) == 2

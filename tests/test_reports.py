"""Reports: pages as HTML and Markdown, records, merging, differences, and the page in a real browser."""

from __future__ import annotations

import argparse
import html
import json
import re
import struct
import sys
from html.parser import HTMLParser
from pathlib import Path

import browser
import numpy as np
import pytest
import xarray as xr

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.reports.difference import Measure, changes
from dsa_crosscheck.compare.reports.figures import SERIES, svg_of
from dsa_crosscheck.compare.reports.html import html_of
from dsa_crosscheck.compare.reports.markdown import markdown_of
from dsa_crosscheck.compare.reports.merge import merge
from dsa_crosscheck.compare.reports.page import Figure, Page, Table
from dsa_crosscheck.compare.reports.records import records_of
from dsa_crosscheck.compare.reports.write import FILES, write_report
from dsa_crosscheck.compare.studies import needle, precision
from dsa_crosscheck.compare.studies.output import write_netcdf
from dsa_crosscheck.compare.studies.table import study_named

FORMATS = ["exact", "bf16", "fp8-fp32-scale", "fp4-even"]
PRECISION = {
    "families": ["gaussian", "compensated"],
    "contexts": [2048, 4096],
    "topk": [128, 256],
    "formats": FORMATS,
    "seeds": 2,
    "rows": 3,
}
NEEDLE = {"families": ["gaussian"], "contexts": [943, 1850], "topk": [64], "formats": FORMATS, "seeds": 1, "rows": 3}
needs_browser = pytest.mark.skipif(browser.BINARY is None, reason="no Chromium")


def measured(name: str, options: dict[str, object]) -> xr.Dataset:
    """The study's dataset with ``options`` in place of its defaults."""
    study = study_named(name)
    parser = argparse.ArgumentParser()
    study.options(parser)
    return study.run(argparse.Namespace(**(vars(parser.parse_args([])) | options)))


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    return measured("precision", PRECISION)


@pytest.fixture(scope="module")
def folders(dataset: xr.Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each study."""
    out = {}
    for name, one in (("precision", dataset), ("needle", measured("needle", NEEDLE))):
        out[name] = tmp_path_factory.mktemp(name) / "report"
        study = study_named(name)
        write_report(out[name], one, study.page(one), study.replicates)
    return out


def plain(text: str = "x") -> Page:
    return Page(text, text, (text,), (), (Table(text, ("a", "b"), ((text, "1"),)),), (text,), ((text, text),), text)


class Elements(HTMLParser):
    """Start tags with attributes, ids, and a check that tags are closed in order."""

    VOID = ("meta", "link", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=["precision", "needle"])
def page(request: pytest.FixtureRequest, folders: dict[str, Path]) -> str:
    return (folders[request.param] / "index.html").read_text(encoding="utf-8")


def test_a_report_is_four_files_and_nothing_else(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_the_page_is_well_formed_and_self_contained(page: str) -> None:
    elements = Elements(page)
    assert elements.open == []
    tags = [tag for tag, _ in elements.found]
    assert "script" not in tags
    assert tags.count("h1") == tags.count("main") == 1
    ids = [attrs["id"] for _, attrs in elements.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [
        value for _, attrs in elements.found for name, value in attrs.items() if name in ("href", "xlink:href", "src")
    ]
    assert targets
    for target in targets:
        assert target is not None
        assert target == "data:," or (target.startswith("#") and target[1:] in ids), target
    assert not re.search(r"url\((?!#)", page)


def test_the_page_can_be_used_without_seeing_it(page: str) -> None:
    elements = Elements(page).found
    figures = [attrs for tag, attrs in elements if tag == "div" and attrs.get("role") == "img"]
    assert len(figures) >= 3
    for attrs in figures:
        assert re.search(r"\d", attrs["aria-label"] or ""), "a description without a number"
    assert [tag for tag, _ in elements].count("figcaption") == len(figures)
    tables = sum(tag == "table" for tag, _ in elements)
    assert tables == sum(tag == "caption" for tag, _ in elements) >= 2
    # What scrolls can be reached and named without a mouse.
    scrolling = [attrs for _, attrs in elements if attrs.get("class") == "scroll"]
    assert len(scrolling) == tables
    assert all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in scrolling)
    assert ("html", {"lang": "en"}) in elements


def test_the_answer_comes_first_and_is_three_sentences(dataset: xr.Dataset, page: str) -> None:
    body = page[page.index("<body>") :]
    assert body.index('id="answer"') < body.index("<figure") < body.index("<table")
    answer = body[body.index('id="answer"') : body.index("</section>")]
    assert answer.count("<p>") == 3


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_can_be_told_from_the_paper(page: str, theme: int) -> None:
    """WCAG 2.1: 4.5 for text, 3 for the marks of a figure, in light and dark."""
    block = re.findall(r":root \{(.*?)\}", page, re.DOTALL)[theme]
    colours = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", block))
    for name in ("ink", "muted", "link"):
        assert contrast(colours[name], colours["paper"]) >= 4.5
        assert contrast(colours[name], colours["raised"]) >= 4.5
    for i in range(len(SERIES)):
        assert contrast(colours[f"s{i + 1}"], colours["paper"]) >= 3
    # Percentages in bars are paper on a series' colour, large enough to count as graphics.
    assert luminance(colours["paper"]) > 0.5 if theme == 0 else luminance(colours["paper"]) < 0.05


def test_figures_take_their_colours_from_the_page() -> None:
    def draw(figure: object) -> None:
        figure.subplots().plot([0, 1], [1, 0], color=SERIES[0])  # type: ignore[attr-defined]

    svg = svg_of("one", 2.0, draw)
    assert "var(--s1)" in svg
    assert "var(--ink)" in svg
    assert not re.search(r"#(?!one-)[0-9a-f]{6}\b", svg.replace("#ffffff", "")), "a fixed colour"
    assert svg == svg_of("one", 2.0, draw)
    assert not set(re.findall(r'id="([^"]+)"', svg)) & set(re.findall(r'id="([^"]+)"', svg_of("two", 2.0, draw)))


def test_text_is_escaped() -> None:
    hostile = '<img src=x onerror=alert(1)> & | "q"'
    text = html_of(plain(hostile))
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; |" in text
    markdown = markdown_of(plain(hostile))
    assert "\\|" in markdown.splitlines()[-3] or "\\|" in markdown
    assert "<summary>&lt;img" in markdown


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`Table\(rows=...\)` should have 2 cells a row, got \('1',\)"):
        Table("t", ("a", "b"), (("1",),))


def test_markdown_holds_answer_tables_and_command(dataset: xr.Dataset) -> None:
    text = markdown_of(study_named("precision").page(dataset))
    assert text.startswith("### What storage formats")
    assert text.count("<details>") == text.count("</details>") >= 4
    assert dataset.attrs["command"] in text
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) >= 4
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_records_hold_every_summary_of_a_measured_cell(dataset: xr.Dataset) -> None:
    lines = [json.loads(line) for line in records_of(dataset, ("seed", "row"))]
    assert (lines[0]["record"], lines[0]["study"]) == ("study", "precision")
    cells = [line for line in lines[1:] if "overlap_mean" in line]
    assert len(cells) == int(dataset.overlap_mean.notnull().sum())
    one = cells[17]
    at = {dim: one[dim] for dim in dataset.overlap_mean.dims}
    for name in ("overlap_mean", "overlap_low", "overlap_worst", "predicted_average"):
        assert one[name] == pytest.approx(dataset[name].sel(at).item())


def test_records_write_what_json_has_no_number_for() -> None:
    one = xr.Dataset({"a": ("n", [1.0, np.nan, np.inf]), "b": ("n", [np.nan, np.nan, 2.0])}, {"n": [1, 2, 3]})
    lines = [json.loads(line) for line in records_of(one, ())]
    assert lines[1:] == [
        {"record": "cell", "n": 1, "a": 1.0, "b": None},
        {"record": "cell", "n": 3, "a": "inf", "b": 2.0},
    ]


def test_merged_runs_are_the_run_of_both(dataset: xr.Dataset) -> None:
    parts = [measured("precision", PRECISION | {"families": [name]}) for name in PRECISION["families"]]  # type: ignore[attr-defined]
    union = merge(parts, precision.summarise)
    assert union.family.values.tolist() == ["gaussian", "compensated"]
    assert union.format.values.tolist() == FORMATS
    xr.testing.assert_equal(union[list(dataset.data_vars)], dataset.drop_attrs())
    assert union.attrs["command"].count("dsa-crosscheck study precision") == 2
    xr.testing.assert_equal(merge([dataset, dataset], precision.summarise), dataset)


def test_runs_that_disagree_are_not_merged(dataset: xr.Dataset) -> None:
    other = dataset.copy(deep=True)
    other.overlap[0] -= 0.01
    with pytest.raises(ValueError, match="`report merge` should get datasets that agree where they overlap"):
        merge([dataset, other], precision.summarise)
    with pytest.raises(
        ValueError, match=r"`report merge` should get datasets of one study, got \['needle', 'precision'\]"
    ):
        merge([dataset, dataset.assign_attrs(study="needle")], precision.summarise)


def test_needle_runs_merge_into_counts_of_both() -> None:
    parts = [measured("needle", NEEDLE | {"contexts": [context]}) for context in (943, 1850)]
    union = merge(
        [part.drop_vars([n for n in part.data_vars if "entry" in part[n].dims]) for part in parts], needle.summarise
    )
    for part in parts:
        at = {"context": part.context}
        xr.testing.assert_allclose(union.recall.sel(at), part.recall)


def study(**values: object) -> xr.Dataset:
    return xr.Dataset({name: ("cell", v) for name, v in values.items()}, {"cell": ["p", "q", "r"]}, {"study": "s"})


def test_significant_changes_come_first() -> None:
    before = study(m=[0.5, 0.5, 0.5], low=[0.4, 0.49, 0.49], high=[0.6, 0.51, 0.51])
    after = study(m=[0.6, 0.53, 0.4], low=[0.5, 0.52, 0.39], high=[0.7, 0.54, 0.41])
    found = changes(before, after, (Measure("m", "low", "high"),))
    assert [(dict(c.where)["cell"], c.significant) for c in found] == [("r", True), ("q", True), ("p", False)]
    # Two half-widths of 0.01: the difference's is their root of squares.
    assert found[1].high - found[1].low == pytest.approx(2 * 0.01 * 2**0.5)
    assert changes(before, before, (Measure("m", "low", "high"),))[0].significant is False


def test_numbers_without_an_interval_are_exact() -> None:
    found = changes(study(m=[1.0, 2.0, np.nan]), study(m=[1.0, 2.5, 3.0]), (Measure("m"),))
    assert [(c.before, c.after, c.significant) for c in found] == [(2.0, 2.5, True), (1.0, 1.0, False)]


def test_runs_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(ValueError, match="a cell in common"):
        changes(study(m=[np.nan] * 3), study(m=[1.0] * 3), (Measure("m"),))
    with pytest.raises(ValueError, match="two datasets of one study, got 's' and 'other'"):
        changes(study(m=[1.0] * 3), study(m=[1.0] * 3).assign_attrs(study="other"), (Measure("m"),))


def test_diff_of_a_coarser_run_names_what_got_worse(
    dataset: xr.Dataset, folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse = dataset.copy(deep=True)
    for name in ("overlap_mean", "overlap_low", "overlap_high"):
        worse[name].loc[{"format": "bf16"}] -= 0.2
    write_netcdf(tmp_path / "worse.nc", worse)
    assert main(["report", "diff", str(folders["precision"]), str(tmp_path / "worse.nc")]) == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("| yes")]
    assert len(rows) == int(dataset.overlap_mean.sel(format="bf16").notnull().sum())
    assert all("format bf16" in row and "-0.2" in row for row in rows)
    assert (
        main(["report", "diff", str(tmp_path / "worse.nc"), str(tmp_path / "worse.nc"), "--out", str(tmp_path / "d")])
        == 0
    )
    assert "0 of " in (tmp_path / "d" / "index.html").read_text()


def test_render_writes_the_report_of_a_dataset_again(folders: dict[str, Path], tmp_path: Path) -> None:
    assert main(["report", "render", str(folders["precision"] / "dataset.nc"), "--out", str(tmp_path / "again")]) == 0
    for name in ("index.html", "report.md", "records.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (folders["precision"] / name).read_bytes(), name
    assert main(["report", "merge", str(folders["needle"]), "--out", str(tmp_path / "one")]) == 0
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(FILES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "`DATASET` should be a netCDF file or the folder of a report"),
        (lambda path: path.write_text("no"), "`DATASET` should be a netCDF file of a study, but"),
        (lambda path: write_netcdf(path, xr.Dataset({"a": 1})), "without the attribute 'study'"),
        (lambda path: write_netcdf(path, xr.Dataset({"a": 1}, attrs={"study": "x"})), "`study` should be one of"),
        (
            lambda path: write_netcdf(path, xr.Dataset({"a": 1}, attrs={"study": "ordering"})),
            "a report should be of one of the studies",
        ),
    ],
)
def test_files_that_are_no_dataset_are_refused(
    make: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "x.nc")  # type: ignore[operator]
    assert main(["report", "render", str(tmp_path / "x.nc"), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_study_without_the_extra_stops_before_it_measures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(precision, "measure", lambda cell: pytest.fail("measured"))
    assert main(["study", "precision", "--out", str(tmp_path / "r")]) == 2
    assert "a report needs the package matplotlib: install dsa-crosscheck[report]" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_leaves_the_old_one(
    dataset: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(tmp_path, dataset, plain("old"), ("seed", "row"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(page: Page) -> str:
        raise OSError("disk full")

    monkeypatch.setattr("dsa_crosscheck.compare.reports.write.markdown_of", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path, dataset, plain("new"), ("seed", "row"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@needs_browser
@pytest.mark.parametrize("name", ["precision", "needle"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_a_phone_and_a_desk_and_logs_nothing(
    folders: dict[str, Path], tmp_path: Path, name: str, width: int
) -> None:
    seen = browser.look(folders[name] / "index.html", tmp_path, width)
    assert seen.console == ()
    assert seen.viewport == width
    assert seen.width == width, seen.wide
    assert seen.wide == ()
    assert seen.text is not None
    assert seen.text >= 7, "text in a figure is too small to read"


@needs_browser
def test_the_page_is_dark_where_the_reader_asks_for_it(folders: dict[str, Path], tmp_path: Path) -> None:
    index = folders["precision"] / "index.html"
    light, dark = (browser.look(index, tmp_path, 800, dark=dark) for dark in (False, True))
    assert light.background == "rgb(255, 255, 255)"
    assert dark.background == "rgb(18, 23, 28)"
    assert light.color != dark.color


@needs_browser
def test_the_page_can_be_photographed(folders: dict[str, Path], tmp_path: Path) -> None:
    browser.screenshot(folders["needle"] / "index.html", tmp_path / "page.png", 800, 1600)
    content = (tmp_path / "page.png").read_bytes()
    assert struct.unpack(">II", content[16:24]) == (800, 1600)
    assert len(content) > 50_000, "a blank page"


@needs_browser
def test_the_browser_check_sees_overflow_and_errors(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<!doctype html><body><div class="w" style="width:900px">x</div><script>oops()</script></body>')
    seen = browser.look(bad, tmp_path, 500)
    assert seen.width > seen.viewport
    assert "DIV.w" in seen.wide
    assert any("oops" in line for line in seen.console)


def test_a_figure_belongs_to_its_page() -> None:
    figure = Figure("f", "caption <b>", "12 of 13", "<svg><title>drawn</title></svg>")
    text = html_of(Page("t", "q", ("a",), (figure,), (), ("m",), (), "c"))
    assert "<svg><title>drawn</title></svg>" in text
    assert "caption &lt;b&gt;" in text


DOCS = Path(__file__).parent.parent / "docs" / "studies"


@pytest.mark.parametrize("name", ["precision", "needle"])
def test_the_committed_page_is_small_and_made_by_this_template(name: str, page: str) -> None:
    text = (DOCS / f"{name}.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 400_000
    assert Elements(text).open == []
    style = re.compile(r"<style>.*?</style>", re.DOTALL)
    assert style.findall(text) == style.findall(page)
    assert f"<code>dsa-crosscheck study {name}</code>" in text
    answers = re.findall(r"<p>(.*?)</p>", text)[:3]
    markdown = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert " ".join(html.unescape(sentence) for sentence in answers) in markdown


@pytest.mark.slow
def test_the_committed_numbers_are_measured_again() -> None:
    one = measured("precision", {"families": ["gaussian"], "contexts": [8192], "topk": [512]})
    table = (DOCS / "precision.md").read_text(encoding="utf-8")
    for kind in ("bf16", "fp8-fp32-scale", "fp4-even"):
        value = one.overlap_mean.sel(format=kind, hadamard="on", score_dtype="fp32").item()
        assert f"| gaussian | 8,192 | 512 | {kind} | {value:.4f} |" in table

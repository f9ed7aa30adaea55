"""The committed record of the GPU, its figure, and what both are made of."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dsa_crosscheck.compare.device.ratios import ratios_to
from dsa_crosscheck.compare.device.table import shape_of
from dsa_crosscheck.compare.device.verdicts import failures
from dsa_crosscheck.compare.studies.device_results import cost_records

pytest.importorskip("matplotlib")
from dsa_crosscheck.compare.device.figure import kernels_figure, ratio_points, share_points
from dsa_crosscheck.compare.reports.figures import standalone

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SCORE = {"stage": "score", "format": "fp8", "rows": 4, "keys": 1000, "next_n": 2, "bytes": 3000}
SELECT = {"stage": "select", "format": "fp32", "rows": 2, "keys": 50, "k": 8}
MADE: dict[str, Any] = {
    "device": "a GPU",
    "commit": "abc",
    "copy_bytes_per_second": 1e9,
    "cost": [
        {"candidate": "cuda", **SCORE, "seconds": 6e-6, "ratio_to": {"peer": 2.0}},
        {"candidate": "cuda", **SCORE, "format": "bf16", "bytes": 4000, "seconds": 5e-6, "ratio_to": {}},
        {"candidate": "peer", **SCORE, "seconds": 3e-6},
        {"candidate": "other", **SCORE, "next_n": 1, "seconds": 1e-6},
        {"candidate": "cuda", **SELECT, "seconds": 1e-6, "ratio_to": {"peer": 0.25}},
        {"candidate": "peer", **SELECT, "seconds": 4e-6},
        {"candidate": "peer", **SELECT, "k": 9, "seconds": 9e-6},
    ],
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RESULTS / "h200-kernels.json").read_text())
    return record


def test_ratios_compare_the_same_work_alone() -> None:
    first, second = MADE["cost"][:2]
    assert ratios_to(first, MADE["cost"]) == {"peer": 2.0}
    assert ratios_to(second, MADE["cost"]) == {}
    assert ratios_to(MADE["cost"][4], MADE["cost"]) == {"peer": 0.25}


def test_points_of_a_made_record() -> None:
    assert ratio_points(MADE) == {"fp8 2 x 1,000 x 2": {"peer": 2.0}, "top-k 2 x 50 k 8": {"peer": 0.25}}
    shares = share_points(MADE)
    assert shares == {"2 x 1,000 x 2": {"fp8": pytest.approx(50.0), "bf16": pytest.approx(80.0)}}


def test_ratios_are_the_record_s_own() -> None:
    changed = {**MADE, "cost": [{**MADE["cost"][0], "ratio_to": {"peer": 0.7}}, *MADE["cost"][1:]]}
    assert ratio_points(changed)["fp8 2 x 1,000 x 2"] == {"peer": 0.7}


def test_figure_draws_every_point() -> None:
    figure = kernels_figure(MADE)
    for text in ("fp8 2 x 1,000 x 2", "top-k 2 x 50 k 8", ">peer<", ">bf16<", "share of the copy bandwidth"):
        assert text in figure.svg
    # A marker for each point and each entry of the two legends.
    assert len(re.findall(r"<use xlink:href=\"#kernels-m[^\"]+\"[^>]*style=\"fill: var\(--s", figure.svg)) == 4 + 3
    assert figure.description.startswith("fp8 2 x 1,000 x 2: peer 2 times; top-k 2 x 50 k 8: peer 0.25 times; ")
    assert "fp8 50 %, bf16 80 %" in figure.description


def test_a_figure_alone_has_colours_and_paper_of_its_own() -> None:
    alone = standalone(kernels_figure(MADE).svg)
    assert "var(" not in alone
    assert alone.startswith('<svg style="background: #ffffff"')


def test_committed_figure_shows_the_committed_record(recorded: dict[str, Any]) -> None:
    svg = (RESULTS / "h200-kernels.svg").read_text()
    told = re.search(r"<desc>(.*?)</desc>", svg, re.DOTALL)
    assert told is not None
    assert unescape(told[1]) == kernels_figure(recorded).description
    assert "var(" not in svg
    for label in (*ratio_points(recorded), *share_points(recorded)):
        assert f">{label}</text>" in svg


def test_committed_record_is_right_and_readable(recorded: dict[str, Any]) -> None:
    assert failures(recorded) == []
    assert "unfinished" not in recorded
    assert len(cost_records(RESULTS)) >= len(recorded["cost"])
    assert all(shape_of(entry) for entry in recorded["cost"])
    assert {entry["stage"] for entry in recorded["cost"]} == {"score", "store", "select"}

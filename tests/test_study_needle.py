"""``dsa-crosscheck study needle``: planted where and as strong as asked, and counted right."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from dsa_crosscheck.compare.cli import main
from dsa_crosscheck.compare.studies import needle
from dsa_crosscheck.compare.studies.families import FAMILIES
from dsa_crosscheck.compare.studies.formats import FORMATS, IDEAL, conventions_of, with_hadamard
from dsa_crosscheck.compare.studies.haystack import Haystack
from dsa_crosscheck.compare.studies.needle_cell import PROBES, NeedleCell, field_of, measure, selected
from dsa_crosscheck.compare.studies.needle_example import example
from dsa_crosscheck.compare.studies.needle_text import answer, searching
from dsa_crosscheck.compare.studies.operands import Operands, exact
from dsa_crosscheck.compare.studies.planting import plant, plant_at_score
from dsa_crosscheck.compare.studies.statistics import wilson_interval
from dsa_crosscheck.compare.studies.table import study_named
from dsa_crosscheck.compare.studies.threshold import smallest_margin
from dsa_crosscheck.reference.select import select
from dsa_crosscheck.reference.trace import Trace, exact_scores

CELL = NeedleCell(
    "gaussian", 4509, 0, 8, ("exact", "bf16", "fp8-fp32-scale", "fp4-even"), (64, 512),
    depths=(0.0, 0.5, 1.0), strengths=(0.2, 0.4, 0.8), hadamard=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def operands() -> Operands:
    return Operands(FAMILIES["gaussian"].build(1850, 6, 0), with_hadamard(True))


@pytest.fixture(scope="module")
def measured() -> xr.Dataset:
    return measure(CELL).squeeze(["family", "context", "seed"])


def test_a_needle_of_strength_zero_is_the_key_it_replaces(operands: Operands) -> None:
    depths = np.broadcast_to([0.0, 0.3, 1.0], (6, 3))
    needles = plant(operands, depths, np.zeros((6, 3)))
    np.testing.assert_array_equal(needles.places[0], [0, 138, 461])
    truth = exact_scores(operands.inputs, IDEAL).values
    np.testing.assert_allclose(
        needles.scores(exact), np.take_along_axis(truth, needles.places, 1), rtol=1e-4, atol=1e-5
    )


def test_a_stronger_needle_scores_higher_and_depth_does_not_matter(operands: Operands) -> None:
    strengths = np.broadcast_to([0.0, 0.3, 0.6, 1.0], (6, 4))
    scores = plant(operands, np.full((6, 4), 0.5), strengths).scores(exact)
    assert (np.diff(scores, axis=1) > 0).all()
    ends = plant(operands, np.broadcast_to([0.0, 1.0], (6, 2)), np.ones((6, 2))).scores(exact)
    np.testing.assert_allclose(ends[:, 0], ends[:, 1], rtol=1e-9)


def test_a_needle_is_planted_at_the_score_that_is_asked_for(operands: Operands) -> None:
    wanted = np.broadcast_to([1.0, 1.7, -50.0, 1e3], (6, 4))
    got = plant_at_score(operands, np.full((6, 4), 0.25), wanted, exact).scores(exact)
    np.testing.assert_allclose(got[:, :2], wanted[:, :2], atol=1e-4)
    assert (got[:, 2] > -50).all()
    assert (got[:, 3] < 1e3).all()


@pytest.mark.parametrize("name", ["depths", "strengths"])
def test_places_and_strengths_outside_their_range_are_refused(operands: Operands, name: str) -> None:
    given = {"depths": np.zeros((6, 1)), "strengths": np.zeros((6, 1))} | {name: np.full((6, 1), 1.5)}
    with pytest.raises(ValueError, match=rf"`plant\({name}=...\)` should be in \[0, 1\], got 1.5"):
        plant(operands, **given)


@pytest.mark.parametrize("kind", ["exact", "fp8-fp32-scale", "fp4-even"])
def test_a_needle_is_selected_exactly_when_the_reference_selects_it_in_its_place(kind: str) -> None:
    """One needle put into the inputs for good: scored and selected by the reference with everything else."""
    field = field_of(CELL)
    operands = field.operands
    rng = np.random.default_rng(0)
    depths, strengths = rng.random((8, 12)), 0.1 + 0.4 * rng.random((8, 12))
    needles = plant(operands, depths, strengths)
    got = selected(field, needles, kind)
    c = conventions_of(kind, True)
    base = Trace(operands.inputs, c).scores.values if kind != "exact" else exact_scores(operands.inputs, c).values
    from dsa_crosscheck.compare.studies.operands import stored

    own = needles.scores(stored(FORMATS[kind]))
    disagreed = 0
    for row in range(8):
        for column, place in enumerate(needles.places[row]):
            scores = base[row].copy()
            scores[place] = own[row, column]
            for j, k in enumerate(CELL.ks):
                chosen = select(scores[None], operands.lengths[row : row + 1], k, c)[0]
                disagreed += (place in chosen) != got[j, row, column]
    assert disagreed == 0
    assert 0 < got.mean() < 1


def test_rivals_are_counted_by_hand() -> None:
    hay = Haystack(np.float64([5, 1, 4, 4, 0]))
    places = np.array([0, 1, 3, 4])
    np.testing.assert_array_equal(hay.rivals_above(np.float64([4.5, 4, 4, 9]), places), [0, 1, 2, 0])
    np.testing.assert_array_equal(hay.kth_of_others(places, 2), [4, 4, 4, 4])
    np.testing.assert_array_equal(hay.kth_of_others(places, 1), [4, 5, 5, 5])
    assert np.isneginf(hay.kth_of_others(places, 5)).all()


def test_margins_say_what_exact_scores_find(measured: xr.Dataset) -> None:
    """A needle of positive exact margin is found by exact scores, so recall there is the share of such margins."""
    field = field_of(CELL)
    for row in range(8):
        truth = field.haystack("exact", row)
        place = np.array([5])
        kth = truth.kth_of_others(place, 64)
        assert truth.rivals_above(kth + 1e-9, place)[0] < 64
        assert truth.rivals_above(kth - 1e-9, place)[0] >= 64
    assert measured.margin.sel(format="exact").isnull().all()
    assert (measured.margin.sel(format="fp4-even").diff("strength") > 0).all()


def test_noise_and_recall_are_ordered_as_the_formats_are(measured: xr.Dataset) -> None:
    noise = measured.noise.sel(k=64)
    assert float(noise.sel(format="exact")) == 0
    assert 0.001 < float(noise.sel(format="bf16")) < 0.01
    assert 0.02 < float(noise.sel(format="fp8-fp32-scale")) < 0.1
    assert 0.1 < float(noise.sel(format="fp4-even")) < 0.4
    found = measured.found.sum("depth") / (3 * float(measured.tried))
    assert (found.diff("strength") >= 0).all()
    assert (found.sel(strength=0.8) > 0.9).all()
    assert (found.sel(strength=0.2, k=64) < 0.7).all()


def test_aimed_needles_land_around_the_boundary(measured: xr.Dataset) -> None:
    for name in ("bf16", "fp8-fp32-scale", "fp4-even"):
        margin = measured.probe_margin.sel(format=name, k=64).values
        assert np.isfinite(margin).mean() > 0.8
        hit = measured.probe_found.sel(format=name, k=64).values > 0
        assert hit[margin > 3].mean() > 0.95
        assert hit[margin < -0.5].mean() < 0.5
    assert measured.probe_margin.sel(format="exact").isnull().all()
    assert measured.sizes["probe"] == 8 * PROBES


def test_the_smallest_margin_of_normal_noise_is_its_quantile() -> None:
    rng = np.random.default_rng(5)
    margin = rng.uniform(-1, 4, 4000)
    estimate, low, high = smallest_margin(margin, margin + rng.standard_normal(4000) > 0)
    assert estimate == pytest.approx(1.645, abs=0.12)
    assert low < 1.645 < high
    assert np.isnan(smallest_margin(margin, np.ones(4000, bool))).all()
    assert np.isnan(smallest_margin(margin[:10], margin[:10] > 1)).all()


def test_wilson_intervals_are_the_published_ones() -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, 15 of 148, 0 of 20 and 1 of 29."""
    low, high = wilson_interval(np.array([81, 15, 0, 1, 0]), np.array([263, 148, 20, 29, 0]))
    np.testing.assert_allclose(low[:4], [0.2553, 0.0624, 0.0, 0.0061], atol=5e-5)
    np.testing.assert_allclose(high[:4], [0.3662, 0.1605, 0.1611, 0.1718], atol=5e-5)
    assert np.isnan(low[4])


def test_an_example_is_lost_by_one_format_and_kept_by_another() -> None:
    shown = example([CELL])
    k, a = shown.attrs["example_k"], shown.attrs
    needle_rank = shown.example_rank.isel(entry=0)
    assert (a["example_keeps"], a["example_loses"]) == ("bf16", "fp4-even")
    assert int(needle_rank.sel(example_format="bf16")) <= k < int(needle_rank.sel(example_format="fp4-even"))
    assert len(set(shown.example_key.values.tolist())) == shown.sizes["entry"]
    for name in shown.example_format.values:
        by_score = np.argsort(-shown.example_score.sel(example_format=name).values, kind="stable")
        assert (np.diff(shown.example_rank.sel(example_format=name).values[by_score]) > 0).all()
    trivial = NeedleCell("gaussian", 338, 0, 2, ("exact", "bf16", "fp4-even"), (512,), (0.5,), (0.5,), True)
    assert not example([trivial]).data_vars


def options(**changes: object) -> argparse.Namespace:
    """The study's options: a small grid, ``changes``, and else the defaults."""
    parser = argparse.ArgumentParser()
    study_named("needle").options(parser)
    known = {
        "families": ["gaussian"],
        "contexts": [338, 943, 4509],
        "topk": [64, 512],
        "formats": ["exact", "bf16", "fp4-even"],
        "seeds": 2,
        "rows": 4,
    }
    return argparse.Namespace(**(vars(parser.parse_args([])) | known | changes))


@pytest.fixture(scope="module")
def dataset() -> xr.Dataset:
    return needle.run(options())


def test_recall_is_found_over_planted_with_wilson_intervals(dataset: xr.Dataset) -> None:
    one = dataset.sel(family="gaussian", context=4509, format="fp4-even", k=64)
    planted = 2 * 4 * 11 * 6
    hits = float(dataset.found.sel(family="gaussian", context=4509, format="fp4-even", k=64).sum())
    assert one.recall.item() == pytest.approx(hits / planted)
    low, high = wilson_interval(np.array([hits]), np.array([planted]))
    assert (one.recall_low.item(), one.recall_high.item()) == (pytest.approx(low[0]), pytest.approx(high[0]))
    by_depth = one.recall_by_depth
    assert by_depth.mean().item() == pytest.approx(one.recall.item())
    np.testing.assert_allclose(
        one.smallest_gap.item(), one.smallest_margin.item() * one.noise_mean.item(), rtol=1e-12
    )  # fmt: skip


def test_needles_are_lost_and_won_by_a_format(dataset: xr.Dataset) -> None:
    """What a format finds is what exact scores find, less the lost and plus the won: both are counted apart."""
    total = dataset.sum(["seed", "depth", "strength"])
    won = total.found - (total.found_exactly - total.lost)
    assert (won >= 0).all()
    one = {"family": "gaussian", "context": 4509, "k": 64, "format": "fp4-even"}
    assert float(won.sel(one)) > 0
    assert float(total.lost.sel(one)) > 0
    assert (total.lost.sel(format="exact") == 0).all()
    assert (total.found.sel(format="exact") == total.found_exactly).all()


def test_contexts_of_at_most_k_keys_find_every_needle(dataset: xr.Dataset) -> None:
    assert (dataset.recall.sel(context=[338, 943], k=512) == 1).all()
    assert dataset.smallest_margin.sel(context=[338, 943], k=512).isnull().all()
    assert searching(dataset, 512) == [4509]
    assert searching(dataset, 64) == [338, 943, 4509]
    assert (dataset.recall.sel(k=64, format="exact").diff("context") < 0).all()


def test_the_answer_has_three_sentences_and_the_example(dataset: xr.Dataset) -> None:
    sentences = answer(dataset)
    assert len(sentences) == 3
    assert f"fp4-even {dataset.lost_share.sel(context=4509, k=64, format='fp4-even').item():.1%}" in sentences[0]
    assert "fp4-even loses and bf16 keeps" in sentences[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--families", "captured-text"], "`--families` should be generated ones"),
        (["--contexts", "943", "338"], "`NeedleGrid(contexts=...)` should be positive and ascending"),
        (["--formats", "fp6"], "`NeedleGrid(formats=...)` should be of"),
        (["--page", "page.txt"], "`--page` should end in .html or .md, got page.txt"),
        (["--page", "none/page.html"], "`--page` should be the path of a file in an existing folder"),
        (["--rows", "0"], "`NeedleGrid(rows=...)` should be at least 1, got 0"),
        (["--contexts", "943", "--topk", "512"], "`--contexts` should give more than `--topk` keys"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "needle", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_command_prints_a_table_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "n.nc"
    words = ["--families", "gaussian", "--contexts", "943", "--topk", "64", "--seeds", "1", "--rows", "2"]
    pages = [tmp_path / "n.html", tmp_path / "n.md"]
    assert main(["study", "needle", *words, "--out", str(out), "--page", *map(str, pages)]) == 0
    assert pages[0].read_text().startswith("<!doctype html>")
    assert pages[1].read_text().startswith("### Needles")
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text
    assert xr.load_dataset(out, engine="h5netcdf").attrs["study"] == "needle"

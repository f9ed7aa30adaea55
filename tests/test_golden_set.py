"""The committed fixtures cover what they are there to cover, and say what they hold truthfully."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from dsa_crosscheck.fixtures.golden.catalogue import RECIPES, recipe
from dsa_crosscheck.fixtures.golden.golden import Golden
from dsa_crosscheck.fixtures.golden.logical import plain_values
from dsa_crosscheck.fixtures.golden.manifest import MANIFEST, SUFFIX
from dsa_crosscheck.fixtures.golden.packaged import golden_at, packaged_folder, packaged_golden, packaged_names
from dsa_crosscheck.fixtures.golden.recipe import FORMAT_NAMES, Recipe
from dsa_crosscheck.reference.models import MODELS
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select
from dsa_crosscheck.reference.trace import score_cache

SIZE_LIMIT = 3_000_000
NAMES = [recipe.name for recipe in RECIPES]


@cache
def golden(name: str) -> Golden:
    return packaged_golden(name)


def test_the_folder_holds_the_catalogue_and_nothing_else() -> None:
    assert sorted(NAMES) == list(packaged_names())
    files = {path.name for path in packaged_folder().iterdir()}
    assert files == {MANIFEST, *(f"{name}{SUFFIX}" for name in NAMES)}
    assert sum(path.stat().st_size for path in packaged_folder().iterdir()) < SIZE_LIMIT


def test_every_preset_in_every_format() -> None:
    held = {(r.preset, r.format) for r in RECIPES}
    assert held >= {(preset, form) for preset in PRESETS for form in ("exact", "bf16", "fp8", "fp4")}
    assert ("sglang-v4-fp8", "fnuz") in held
    for name in NAMES:
        conventions, made = golden(name).conventions, recipe(name)
        assert conventions.key.format == conventions.query.format == FORMAT_NAMES[made.format]


def test_a_preset_in_its_own_format_is_the_preset() -> None:
    own = [r for r in RECIPES if PRESETS[r.preset].conventions.key.format == FORMAT_NAMES[r.format]]
    own = [r for r in own if PRESETS[r.preset].conventions.query.format == FORMAT_NAMES[r.format]]
    assert {r.preset for r in own} == set(PRESETS)
    for r in own:
        assert golden(r.name).conventions == PRESETS[r.preset].conventions, r.name


def test_sizes() -> None:
    goldens = [golden(name) for name in NAMES]
    assert {g.geometry.page_size for g in goldens} == {1, 16, 64}
    assert {g.geometry.compress_ratio for g in goldens} == {1, 4}
    assert all(4 <= g.geometry.heads <= 8 for g in goldens)
    for ratio in (1, 4):
        seen = {
            json.loads(str(g.attributes["recipe"]))["next_n"] for g in goldens if g.geometry.compress_ratio == ratio
        }
        assert seen == {1, 2, 3, 4}
    for k in {g.geometry.topk for g in goldens}:
        lengths = {int(n) for g in goldens if g.geometry.topk == k for n in g["lengths"]}
        assert lengths >= {0, 1, k - 1, k, k + 1}
    assert {int(n) for g in goldens for n in g["lengths"]} >= {0, 1, 3, 4}
    page_and_one = [g for g in goldens if int(g["inputs.key_counts"].max()) > g.geometry.page_size]
    assert {g.geometry.page_size for g in page_and_one} == {1, 16, 64}


@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_neighbours_that_see_different_keys(name: str) -> None:
    g = golden(name)
    drafts = np.sort(g["inputs.query_positions"][g["inputs.request_of_row"] == 1])
    assert drafts.size == recipe(name).next_n
    np.testing.assert_array_equal(np.diff(drafts), np.ones(drafts.size - 1))


@pytest.mark.parametrize("name", NAMES)
def test_block_tables_are_permuted_and_end_in_minus_one(name: str) -> None:
    g = golden(name)
    table = g["inputs.block_table"]
    assert (table[:, -1] == -1).all()
    assert (table[2] == -1).all(), "the third request is empty"
    pages = table[table >= 0]
    assert np.unique(pages).size == pages.size
    assert 0 not in pages
    if pages.size >= 5:
        assert (np.diff(pages) < 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_poison_outside_the_valid_range_changes_nothing(name: str) -> None:
    g = golden(name)
    cache, poisoned = g["cache"], g["poisoned_cache"]
    assert (poisoned[cache != poisoned] == 0xFF).all()
    assert (cache != poisoned).any()
    # Page 0 is in no block table.
    assert (poisoned[0] == 0xFF).all()
    assert (poisoned == 0xFF).mean() > 0.1
    scores = score_cache(g.inputs, poisoned, g["query.codes"], g["query.weights"], g.conventions).values
    np.testing.assert_array_equal(scores, g["trace.scores"])
    given, lengths = g["selector.scores"], g["lengths"]
    past = np.arange(given.shape[1]) >= lengths[:, None]
    assert np.isnan(given[past]).all()
    np.testing.assert_array_equal(select(given, lengths, g.geometry.topk, g.conventions), g["selector.selection"])


@pytest.mark.parametrize("name", NAMES)
def test_bounds_margins_and_ties_belong_to_the_scores(name: str) -> None:
    g = golden(name)
    assert list(g.bounds) == list(MODELS)
    seen = np.arange(g["scores"].shape[1]) < g["lengths"][:, None]
    assert np.isneginf(g["scores"][~seen]).all()
    for bound in g.bounds.values():
        assert (bound[seen] > 0).all()
        assert (bound[~seen] == 0).all()
    assert (g.bounds["ieee-fp32"] <= g.bounds["bf16-scores"]).all()
    for row, length in enumerate(g["lengths"]):
        order = np.sort(g["trace.scores"][row, :length])[::-1]
        k = g.geometry.topk
        assert g["margin"][row] == (order[k - 1] - order[k] if length > k else np.inf)
        # float32 scores can tie where float64 ones differ, never the other way round.
        if g["margin"][row] == 0:
            assert g.tie_census["left_out"][row] > 0


def test_plateaus_decide_rows() -> None:
    tied = [name for name in NAMES if (golden(name).tie_census["left_out"] > 0).any()]
    assert {recipe(name).case for name in tied} >= {"plateau"}
    assert sum(int(golden(name).tie_census["zeros"].sum()) for name in NAMES if recipe(name).case == "plateau") > 0


def of_case(*cases: str) -> list[tuple[Recipe, Golden]]:
    found = [(r, golden(r.name)) for r in RECIPES if r.case in cases]
    assert {r.case for r, _ in found} == set(cases)
    return found


def test_exact_integers_are_exact() -> None:
    """Dot products of stored bytes are whole multiples of one number: a row with one head sums exactly in float32."""
    for r, g in of_case("exact-integers"):
        if r.format == "exact":
            continue
        magnitudes = np.unique(np.abs(plain_values(g.arrays["key.codes"])))
        unit = magnitudes[magnitudes > 0].min()
        np.testing.assert_array_equal(magnitudes / unit, [0, 1, 2, 4])


def test_key_sizes_are_spread() -> None:
    for _, g in of_case("spread"):
        norms = np.linalg.norm(g["key.rotated"], axis=-1)
        assert norms.max() / norms.min() > 2**4


def test_zero_keys_stay_zero() -> None:
    for _, g in of_case("zeros", "floors"):
        zero = ~g["inputs.pooled"].any(axis=1)
        assert zero.any()
        assert (~zero).any()
        assert not plain_values(g.arrays["key.codes"])[zero].any()
    for _, g in of_case("zeros"):
        pooled = g["inputs.pooled"]
        assert np.signbit(pooled[pooled == 0]).any()
        assert not np.signbit(pooled[pooled == 0]).all()


def test_floors_are_reached_from_both_sides() -> None:
    scaled = [g for _, g in of_case("floors") if "key.scales" in g.arrays]
    assert len(scaled) >= 2
    for g in scaled:
        amax = np.abs(g["key.rotated"]).max(axis=1)
        floor = g.conventions.key.amax_floor
        assert floor is not None
        assert (amax[amax > 0] < floor).any()
        scales = plain_values(g.arrays["key.scales"])
        assert np.unique(scales).size >= 1
        largest = float(g.conventions.key.spec.max_value)
        assert (scales >= floor / largest * (1 - 1e-6)).all()


def test_saturating_queries_saturate() -> None:
    for _, g in of_case("saturating"):
        assert np.abs(g["query.rotated"]).max() > 448
        codes = g["query.codes"] & 0x7F
        assert (codes == 0x7E).any()
        assert not (codes == 0x7F).any()


@pytest.mark.parametrize("case", ["amax-on-power", "amax-above-power"])
def test_amax_is_on_the_power_or_one_ulp_above(case: str) -> None:
    for _, g in of_case(case):
        largest = g.conventions.key.spec.max_value
        amax = np.abs(g["key.rotated"]).max(axis=-1)
        fraction = np.frexp(amax / largest)[0]
        ulp = 2.0**-6 if g.conventions.bf16_points else 2.0**-22
        if case == "amax-on-power":
            np.testing.assert_array_equal(fraction, 0.5)
        else:
            assert (fraction > 0.5).all()
            assert (fraction < 0.5 + ulp).all()
        np.testing.assert_array_equal(amax.astype(np.float32), amax)
        heads = np.abs(g["query.rotated"]).max(axis=-1)
        on, above, below = (np.frexp(heads[:, h] / g.conventions.query.spec.max_value)[0] for h in range(3))
        np.testing.assert_array_equal(on, 0.5)
        assert ((above > 0.5) & (above < 0.5 + ulp)).all()
        assert ((below > 1 - ulp) & (below < 1)).all()


def test_power_of_two_scales_turn_over_there() -> None:
    on, above = golden("deepseek-v4.fp8.amax-on-power"), golden("deepgemm-fp8.fp4.amax-above-power")
    assert (np.abs(plain_values(on.arrays["key.codes"])).max(axis=1) == 448).all()
    groups = np.abs(plain_values(above.arrays["key.codes"])).reshape(-1, 2, 32).max(axis=-1)
    assert set(np.unique(groups)) == {0, 3}, "one ulp more, and the scale is twice as large"


def test_address_coded_elements_tell_their_places() -> None:
    for _, g in of_case("address-coded"):
        columns = {g["key.rotated"][:, dim].tobytes() for dim in range(g.geometry.head_dim)}
        assert len(columns) == g.geometry.head_dim


def test_pooling_is_there_in_some() -> None:
    held = [g for g in map(golden, NAMES) if "pooled_stretch" in g.arrays]
    assert len(held) >= 2
    assert all(g["pooled_stretch"].shape == (2, g.geometry.head_dim) for g in held)


def test_some_keys_have_no_slot() -> None:
    assert any((golden(name)["inputs.slots"] < 0).any() for name in NAMES)


def test_unknown_names_are_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"`recipe\(name=...\)` should be one of deepseek-v32.*got 'none'"):
        recipe("none")
    with pytest.raises(ValueError, match=r"`packaged_golden\(name=...\)` should be one of .*got 'none'"):
        packaged_golden("none")
    with pytest.raises(ValueError, match="'none' should be the path of a fixture, or one of"):
        golden_at("none")
    with pytest.raises(ValueError, match="`recipe` should hold the fields of Recipe as JSON"):
        Recipe.from_record("{}")

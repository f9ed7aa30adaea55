"""What each fixture sees of the faults that are made on purpose, and the page that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsa_crosscheck.compare.golden.coverage import FAMILIES, FAMILY_OF_FIELD, FAMILY_OF_STAGE, Coverage, coverage
from dsa_crosscheck.compare.golden.page import BEGIN, END, coverage_table, replace_table
from dsa_crosscheck.compare.mutants.faults import FAULTS
from dsa_crosscheck.fixtures.golden.packaged import packaged_golden, packaged_names
from dsa_crosscheck.reference.conventions import CHOICES

PAGE = Path(__file__).parent.parent / "docs" / "fixtures.md"
RECOMPUTED = "sglang-v4-fp4.exact.exact-integers"


def page_rows() -> dict[str, dict[str, tuple[int, int]]]:
    """Seen and judged mutants by fixture and family, as the page has them."""
    lines = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["fixture", "sizes", *FAMILIES]
    rows = {}
    for name, _, *counts in cells[2:]:
        pairs = [tuple(int(part) for part in count.split("/")) for count in counts]
        rows[name.strip("`*")] = {family: (pair[0], pair[1]) for family, pair in zip(FAMILIES, pairs, strict=True)}
    return rows


def test_every_field_and_stage_has_a_family() -> None:
    assert set(FAMILY_OF_FIELD) == {*CHOICES, "key", "query", "bf16_points"}
    assert set(FAMILY_OF_STAGE) == {fault.stage for fault in FAULTS.values()}


def test_the_page_has_every_fixture_and_none_is_blind() -> None:
    rows = page_rows()
    assert list(rows) == [*packaged_names(), "all together"]
    for name, families in rows.items():
        assert sum(seen for seen, _ in families.values()) > 0, name
        assert all(seen <= judged for seen, judged in families.values())


def test_the_set_sees_every_family_and_every_structural_fault() -> None:
    together = page_rows()["all together"]
    for family, (seen, _) in together.items():
        assert seen > 0, family
    for family in FAMILY_OF_STAGE.values():
        seen, judged = together[family]
        assert seen == judged, family


def test_the_page_says_what_is_computed() -> None:
    found = coverage(packaged_golden(RECOMPUTED))
    counts = {family: (len(found.seen[family]), len(found.judged[family])) for family in FAMILIES}
    assert counts == page_rows()[RECOMPUTED]
    assert found.total == sum(seen for seen, _ in counts.values())
    assert "hadamard_key=False" in found.seen["Hadamard"]
    assert "norm_eps=1e-05" not in found.seen["norm"], "keys are so large that eps does nothing"


def test_the_table_unites_what_fixtures_see() -> None:
    goldens = [packaged_golden(name) for name in packaged_names()[:2]]
    nothing: dict[str, tuple[str, ...]] = dict.fromkeys(FAMILIES, ())
    rows = [
        Coverage(goldens[0].name, {**nothing, "norm": ("a",)}, {**nothing, "norm": ("a", "b", "c")}),
        Coverage(goldens[1].name, {**nothing, "norm": ("a", "b")}, {**nothing, "norm": ("a", "b", "d")}),
    ]
    lines = coverage_table(rows, goldens).splitlines()
    assert lines[2].startswith(f"| `{goldens[0].name}` | page ")
    assert [line.split("|")[3].strip() for line in lines[2:]] == ["1/3", "2/3", "2/4"]


def test_the_table_replaces_only_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_table(page, "| new |")
    assert page.read_text() == f"before\n{BEGIN}\n| new |\n{END}\nafter\n"
    for text in ("no marks", f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        page.write_text(text)
        with pytest.raises(ValueError, match="`--out` should be a page with"):
            replace_table(page, "| new |")
        assert page.read_text() == text

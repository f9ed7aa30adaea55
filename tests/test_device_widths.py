"""The accumulator models say what was measured on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsa_crosscheck.reference.models import MODELS

RECORD = Path(__file__).parents[1] / "docs" / "results" / "h200-accumulator.json"


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], dict[str, Any]]:
    found = json.loads(RECORD.read_text(encoding="utf-8"))["accumulator"]
    return {(one["candidate"], one["format"]): one for one in found}


def test_the_fp8_unit_is_its_model(measured: dict[tuple[str, str], dict[str, Any]]) -> None:
    one, model = measured["deepgemm", "fp8"], MODELS["tensor-core-fp8"]
    assert one["within_bits"] == one["between_bits"] == one["kept_bits"] == model.accumulator_bits
    assert [len(group) for group in one["groups"]] == [model.accumulate] * 4


@pytest.mark.parametrize("kind", ["fp8", "bf16"])
def test_our_scorers_unit_is_one_that_ieee_fp32_covers(
    measured: dict[tuple[str, str], dict[str, Any]], kind: str
) -> None:
    """What ``AccumulatorModel.dot_error`` asks of it."""
    one = measured["cuda", kind]
    assert one["within_bits"] >= 26
    assert one["result_bits"] == one["between_bits"] == 24
    assert all(len(group) >= 8 for group in one["groups"])

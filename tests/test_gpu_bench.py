"""On a GPU: the bench on small shapes, captured and replayed for real. Run by `pytest -m gpu`."""

from __future__ import annotations

import math

import pytest
import torch

from dsa_crosscheck.compare.device.batches import ScoreShape, SelectShape, StoreShape
from dsa_crosscheck.compare.device.cell import measure
from dsa_crosscheck.compare.device.contenders import contenders_named
from dsa_crosscheck.compare.device.stages import STAGES
from dsa_crosscheck.compare.device.verdicts import failure

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

SMALL = {"score": ScoreShape(4, 2048, 2), "store": StoreShape(1 << 16), "select": SelectShape(16, 8192, 512)}
EXPECTED = {"score": ["cuda", "unfused"], "store": ["cuda", "unfused"], "select": ["cuda", "unfused", "torch"]}


@pytest.mark.parametrize(
    ("stage", "kind"), [pytest.param(s, kind, id=f"{s.name}-{kind}") for s in STAGES for kind in s.formats]
)
def test_small_cells_are_timed_and_right(stage, kind):
    found = measure(stage, kind, SMALL[stage.name], contenders_named(["cuda", "unfused", "torch"]), 4e12)
    assert found.left_out == []
    assert [entry["candidate"] for entry in found.entries] == EXPECTED[stage.name]
    assert [failure(entry) for entry in found.entries] == [""] * len(found.entries)
    for entry in found.entries:
        assert 0 < entry["seconds_low"] <= entry["seconds"] <= entry["seconds_high"] < 1
        assert entry["input_sets"] >= 2
    assert all(math.isfinite(ratio) for ratio in found.entries[0]["ratio_to"].values())


def test_a_longer_row_takes_longer():
    """A replay that ran nothing would take the same time whatever its shape."""
    score = STAGES[0]
    short, long = (
        measure(score, "fp8", ScoreShape(64, keys), contenders_named(["cuda"]), 4e12).entries[0]["seconds"]
        for keys in (2048, 32768)
    )
    assert long > 4 * short

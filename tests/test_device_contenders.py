"""Contenders of the GPU bench, run on CPU tensors, and the judges that must see when one is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dsa_crosscheck.compare.device.batches import ScoreShape, SelectShape, StoreShape
from dsa_crosscheck.compare.device.contenders import CONTENDERS, contenders_named, deepgemm
from dsa_crosscheck.compare.device.predicted import predicted_bytes
from dsa_crosscheck.compare.device.sizes import L2_BYTES, input_sets
from dsa_crosscheck.compare.device.stages import STAGES
from dsa_crosscheck.compare.studies.memory_measured import measured
from dsa_crosscheck.compare.studies.read_path import ReadSizes
from dsa_crosscheck.reference.geometry import Geometry

SMALL = {"score": ScoreShape(2, 200, 2), "store": StoreShape(300), "select": SelectShape(3, 700, 64)}
BY_NAME = {stage.name: stage for stage in STAGES}
CPU_CAN = ("cuda", "unfused", "torch")
CELLS = [
    (name, stage.name, kind)
    for stage in STAGES
    for kind in stage.formats
    for name in CPU_CAN
    if kind in contenders_named([name])[0].formats(stage.name)
]


def done(name: str, stage: str, kind: str) -> tuple[Any, Any]:
    """The judge of a small batch, and the batch with the result of contender ``name``."""
    batch = BY_NAME[stage].batch(kind, SMALL[stage], 0, "cpu")
    judge = BY_NAME[stage].judge(batch)
    own = replace(batch)
    launch = contenders_named([name])[0].plan(stage, own)
    own.clear()
    launch()
    return judge, own


def test_names_are_the_table_and_a_module_that_loads_has_its_stages() -> None:
    assert {one.name for one in CONTENDERS} == {"cuda-mma", "deepgemm", "sglang", *CPU_CAN}
    assert [one.name for one in CONTENDERS if one.gpu_only] == ["cuda", "cuda-mma", "deepgemm", "sglang"]
    assert len(CELLS) == 3 + 3 + 3 + 3 + 3
    with pytest.raises(ValueError, match=r"should name, for a GPU, some of \('cuda', .*got 'emulated'"):
        contenders_named(["cuda", "emulated"])
    assert contenders_named(["deepgemm"])[0].formats("store") == ()


@pytest.mark.parametrize(("name", "stage", "kind"), CELLS)
def test_results_are_right(name: str, stage: str, kind: str) -> None:
    judge, batch = done(name, stage, kind)
    found = judge(batch)
    if stage == "score":
        assert 0 < found["worst_error_over_bound"]["ieee-fp32"] < 0.1
    elif stage == "store":
        # Another order of float32 additions moves a code now and then.
        assert found["differing"] <= (0 if name == "cuda" else found["compared"] // 200)
        assert found["compared"] == 300 * batch.codec.record_bytes(128)
    else:
        assert found["wrong_rows"] == 0
        assert found["checked_rows"] == 3
        assert found["ordered"] == (name != "torch")


@pytest.mark.parametrize(("name", "stage", "kind"), CELLS)
def test_a_call_that_writes_nothing_is_seen(name: str, stage: str, kind: str) -> None:
    judge, batch = done(name, stage, kind)
    batch.clear()
    found = judge(batch)
    if stage == "score":
        assert not found["worst_error_over_bound"]["tensor-core-fp8"] <= 1
    elif stage == "store":
        assert found["differing"] > 0.9 * found["compared"]
    else:
        assert found["wrong_rows"] == found["checked_rows"]


def test_a_unit_that_is_not_there_does_not_score() -> None:
    with pytest.raises(ValueError, match=r"plan_scores\(unit=.*got 'mma'"):
        done("cuda-mma", "score", "fp8")


def test_one_wrong_value_is_seen() -> None:
    judge, scored = done("cuda", "score", "fp8")
    scored.scores[-1, 17] *= 1.01
    assert judge(scored)["worst_error_over_bound"]["ieee-fp32"] > 1
    judge, stored = done("cuda", "store", "bf16")
    stored.cache[int(stored.slots[3]) // 64, int(stored.slots[3]) % 64 * 256] ^= 1
    assert judge(stored)["differing"] == 1
    judge, selected = done("cuda", "select", "fp32")
    selected.selected[1] = selected.selected[1].flip(0)
    assert judge(selected)["ordered"] is False
    selected.selected[2, 0] = int(selected.scores[2].argmin())
    assert judge(selected)["wrong_rows"] == 1


@pytest.mark.parametrize("kind", ["fp8", "bf16", "fp4"])
def test_bytes_and_flops_are_counted(kind: str) -> None:
    record = {"fp8": 132, "bf16": 256, "fp4": 68}[kind]
    query = {"fp8": 128, "bf16": 256, "fp4": 68}[kind]
    score = BY_NAME["score"].batch(kind, SMALL["score"], 0, "cpu")
    assert score.bytes == 2 * 200 * record + 4 * 4 * 200 + 4 * 64 * (query + 4)
    assert score.flops == 2 * 4 * 200 * 64 * 128
    store = BY_NAME["store"].batch(kind, SMALL["store"], 0, "cpu")
    assert store.bytes == 300 * (512 + record + 12)
    assert store.flops == 300 * (256 + 256 + 192 + 7 * 128 + 128 + 128)
    assert sorted(store.slots.tolist()) == list(range(300))
    select = BY_NAME["select"].batch("fp32", SMALL["select"], 0, "cpu")
    assert (select.bytes, select.flops) == (4 * (3 * 700 + 3 * 65), 0)


@pytest.mark.parametrize("read", [1 << 10, 33 << 20, 60 << 20, 2 << 30])
def test_inputs_outgrow_the_cache(read: int) -> None:
    sets = input_sets(read)
    assert sets >= 2
    assert sets * read > 3 * L2_BYTES
    assert sets == 2 or (sets - 1) * read <= 3 * L2_BYTES


def test_seeds_give_other_inputs() -> None:
    for stage in STAGES:
        first, second = (stage.batch(stage.formats[0], SMALL[stage.name], seed, "cpu") for seed in (0, 1))
        name = {"score": "cache", "store": "rows", "select": "scores"}[stage.name]
        assert not torch.equal(getattr(first, name), getattr(second, name))


def test_predictions_are_those_of_the_memory_study() -> None:
    assert predicted_bytes("cuda", "fp8", 6144, 5632) == 6144 * 5632 * 4
    found = measured(
        "unfused",
        "fp8-fp32-scale",
        ReadSizes(64, 512, Geometry(), BY_NAME["score"].batch("fp8", SMALL["score"], 0, "cpu").conventions.key),
    )
    assert found is not None
    assert predicted_bytes("unfused", "fp8", 64, 512) == pytest.approx(found.peak, rel=0.02)


class Switched:
    """A module with the package's switch, which remembers how its kernel was called."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[bool] = []

    def get_pdl(self) -> bool:
        return self.on

    def set_pdl(self, on: bool) -> None:
        self.on = on

    def get_num_sms(self) -> int:
        return 132

    def get_paged_mqa_logits_metadata(self, *given: object) -> None:
        pass

    def fp8_paged_mqa_logits(self, *given: object, clean_logits: bool) -> torch.Tensor:
        self.calls.append(self.on)
        return torch.zeros(1)


def test_a_peer_overlaps_as_ours_and_its_switch_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Switched()
    monkeypatch.setattr(deepgemm, "load_package", lambda more: module)
    deepgemm.score(BY_NAME["score"].batch("fp8", SMALL["score"], 0, "cpu"))()
    assert module.calls == [True]
    assert module.on is False

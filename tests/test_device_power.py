"""Scoring from rest and under load, with stand-ins for the timer and for nvidia-smi."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch

from dsa_crosscheck.compare.device import power
from dsa_crosscheck.compare.device.batches import ScoreShape, score_batch
from dsa_crosscheck.compare.device.contenders import contenders_named

ANSWER = "GPU-aa, 1980, 500.5, 700.00\nGPU-bb, 1455, 741.29, 700.00\n"


class Load:
    """In place of ``Replay``: two calls of 1 ms from rest, of 1.25 ms under load; keeps the loads."""

    loads: list[int]
    calls = 2

    def __init__(self, work: Sequence[Callable[[], object]]) -> None:
        for call in work:
            call()

    def rested_seconds(self) -> float:
        return 1e-3

    def loaded_seconds(self, replays: int, meanwhile: Callable[[], object] = lambda: None) -> float:
        self.loads.append(replays)
        meanwhile()
        return 1.25e-3


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    Load.loads = []
    monkeypatch.setattr(power, "Replay", Load)
    monkeypatch.setattr(power, "CASES", (("fp8", ScoreShape(1, 64)), ("bf16", ScoreShape(1, 64))))
    monkeypatch.setattr(power, "score_batch", lambda kind, shape, seed, device: score_batch(kind, shape, seed, "cpu"))
    monkeypatch.setattr(power, "input_sets", lambda read_bytes: 2)
    monkeypatch.setattr(power.time, "sleep", lambda pause: None)
    monkeypatch.setattr(power, "output_of", lambda *command: ANSWER)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(uuid="bb"))
    return Load.loads


def test_every_case_is_timed_from_rest_and_under_load(loads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    found = power.measure(contenders_named(["cuda", "deepgemm"]))
    assert [(entry["candidate"], entry["format"]) for entry in found["power"]] == [("cuda", "fp8"), ("cuda", "bf16")]
    assert found["power"][0] | {"seconds": 1e-3, "loaded_seconds": 1.25e-3, "sm_clock_mhz": 1455.0} == found["power"][0]
    assert loads == [150] * 4  # 0.3 s of 2 ms, before and while it is timed
    assert [(entry["candidate"], entry["format"]) for entry in found["left_out"]] == [("deepgemm", "fp8")]
    text = power.render(found)
    assert "cuda      fp8    1 x 64      1,000.0       1,250.0 1,455 741     700" in text
    assert "deepgemm fp8 1 x 64 left out: " in text


def test_nothing_is_timed_where_nobody_tells_the_clock(loads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "output_of", lambda *command: "")
    with pytest.raises(ValueError, match="nvidia-smi should tell"):
        power.measure(contenders_named(["cuda"]))
    assert loads == []


def test_the_state_is_that_of_the_gpu_in_use() -> None:
    assert power.state_of("bb", ANSWER) == {"sm_clock_mhz": 1455.0, "power_watts": 741.29, "power_limit_watts": 700.0}
    alone = "GPU-cc, 1200, 300.00, 350.00"
    assert power.state_of("unknown", alone)["sm_clock_mhz"] == 1200.0


@pytest.mark.parametrize("answer", ["", "Failed to initialize NVML", "GPU-bb, [N/A], 1, 1", ANSWER.replace("bb", "cc")])
def test_no_state_is_told_with_the_answer(answer: str) -> None:
    with pytest.raises(ValueError, match=r"nvidia-smi should tell .* of GPU bb, got "):
        power.state_of("bb", answer)

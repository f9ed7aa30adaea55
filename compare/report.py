"""The result of a cross-check: one object, several renderings."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dsa_crosscheck.compare.census import TieCensus
from dsa_crosscheck.compare.diagnosis.explanation import Explanation
from dsa_crosscheck.compare.noise import Noise
from dsa_crosscheck.compare.selection_certificate import Swap
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.verdict import Verdict


@dataclass(frozen=True)
class Selection:
    """End-to-end agreement of the selected keys: overlap with the reference's own (mean, worst
    row), the verdict, the smallest bound factor that passes, and the widest swaps (capped)."""

    overlap_mean: float
    overlap_min: float
    verdict: Verdict
    factor: float | None = None
    swaps: tuple[Swap, ...] = ()
    swap_count: int = 0


@dataclass(frozen=True)
class Report:
    """Everything a cross-check found.

    ``verdict``: of the whole; ``first_fault``: the first failing stage in the order of the data's
    path, None without one. ``noise``: the format's cost; ``error``: calc_diff and cosine of the
    candidate's scores against the reference's (empty when it offers none). ``census``: ties and zeros
    among the scores; ``explanation``: why it failed, None when it did not or nobody asked.
    """

    candidate: str
    conventions: str
    case: dict[str, object]
    bound: str
    verdict: Verdict
    first_fault: str | None
    stages: tuple[StageResult, ...]
    selection: Selection | None
    noise: Noise
    error: dict[str, float]
    environment: dict[str, object]
    not_offered: tuple[str, ...] = ()
    replay: str = ""
    notes: tuple[str, ...] = field(default=())
    census: TieCensus | None = None
    explanation: Explanation | None = None

    def __str__(self) -> str:
        from dsa_crosscheck.compare.render import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; a float that JSON cannot hold becomes the text ``inf``, ``-inf`` or ``nan``."""
        selection = None
        if self.selection is not None:
            selection = asdict(self.selection) | {"verdict": self.selection.verdict.value}
        return _plain(
            {
                "verdict": self.verdict.value,
                "first_fault": self.first_fault,
                "candidate": self.candidate,
                "conventions": self.conventions,
                "case": self.case,
                "bound": self.bound,
                "stages": [stage.record() for stage in self.stages],
                "selection": selection,
                "noise": asdict(self.noise),
                "error": self.error,
                "not_offered": list(self.not_offered),
                "notes": list(self.notes),
                "census": None if self.census is None else self.census.record(),
                "explanation": None if self.explanation is None else self.explanation.record(),
                "environment": self.environment,
                "replay": self.replay,
            }
        )

    def to_json(self) -> str:
        """The dictionary as indented JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dataset(self) -> Any:
        """An ``xarray.Dataset`` over the dimension ``stage``, with the rest as attributes."""
        import numpy as np
        import xarray as xr

        names = [s.stage for s in self.stages]
        numbers = ("elements", "differing", "worst", "bound", "factor")
        columns: dict[str, Any] = {
            name: ("stage", np.array([_number(getattr(s, name)) for s in self.stages], np.float64)) for name in numbers
        }
        columns["verdict"] = ("stage", np.array([s.verdict.value for s in self.stages], dtype=str))
        attrs: dict[str, Any] = {
            "verdict": self.verdict.value,
            "first_fault": self.first_fault or "",
            "candidate": self.candidate,
            "conventions": self.conventions,
            "bound": self.bound,
            "noise_overlap_mean": self.noise.overlap_mean,
            "noise_overlap_min": self.noise.overlap_min,
            "noise_snr_db": self.noise.snr_db,
        }
        if self.selection is not None:
            attrs |= {
                "selection_overlap_mean": self.selection.overlap_mean,
                "selection_overlap_min": self.selection.overlap_min,
                "selection_verdict": self.selection.verdict.value,
            }
        if self.explanation is not None:
            attrs |= {
                "explanation_operand": self.explanation.operand,
                "explanation_cause": self.explanation.cause,
                "explanation_where": self.explanation.where,
            }
        attrs |= {f"error_{name}": value for name, value in self.error.items()}
        attrs |= {f"case_{name}": value for name, value in self.case.items()}
        attrs |= {f"environment_{name}": str(value) for name, value in self.environment.items()}
        return xr.Dataset(columns, coords={"stage": names}, attrs=attrs)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):  # a numpy number
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

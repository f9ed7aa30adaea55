"""Correct runs that the certificates must not fail: random cases, random admissible arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dsa_crosscheck.compare.engine import crosscheck
from dsa_crosscheck.compare.mutants.float32_candidate import RandomFloat32
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.fixtures.cases import build_case
from dsa_crosscheck.reference.presets import preset as named_preset

CASES = ("gaussian", "outlier", "spread", "plateau", "exact-integers")
KEYS = 72
ROWS = 6
PAGE_SIZE = 16
TOPK = 12


@dataclass(frozen=True)
class FalseAlarm:
    """A correct run that was failed: what repeats it, and the first fault that was found."""

    preset: str
    case: str
    seed: int
    verdict: str
    fault: str


def correct_run(preset: str, seed: int) -> Report:
    """The report of one correct run; the seed chooses the case, its numbers and every order in the candidate."""
    row = named_preset(preset)
    geometry = replace(row.geometry, page_size=PAGE_SIZE, topk=TOPK)
    case = CASES[seed % len(CASES)]
    inputs = build_case(case, context=KEYS * geometry.compress_ratio, rows=ROWS, seed=seed, geometry=geometry)
    candidate = RandomFloat32(row.conventions, seed)
    return crosscheck(inputs, candidate, case={"name": case}, repeat=0, explain=False)


def false_alarms(
    presets: tuple[str, ...], runs: int, progress: Callable[[int], None] = lambda run: None
) -> list[FalseAlarm]:
    """Failed ones among ``runs`` correct runs with seeds 0, 1, ..., the presets taking turns.

    ``ValueError`` for a negative number of runs, no preset or an unknown one.
    """
    if runs < 0:
        raise ValueError(f"`false_alarms(runs=...)` should not be negative, got {runs}")
    if not presets:
        raise ValueError("`false_alarms(presets=...)` should name at least one preset, got none")
    found = []
    for seed in range(runs):
        progress(seed)
        name = presets[seed % len(presets)]
        report = correct_run(name, seed)
        if report.verdict.failed:
            fault = next(line for line in report.stages if line.verdict.failed)
            text = f"{fault.stage} at {fault.at}: {fault.note}"
            found.append(FalseAlarm(name, str(report.case["name"]), seed, report.verdict.value, text))
    return found

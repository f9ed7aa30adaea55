"""The worst element of a failed comparison as a reader needs it: address, both values, gap, bound."""

from __future__ import annotations

import re
from math import isinf

from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages.run import END_TO_END
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.inputs import Inputs

_SELECTIONS = ("selection", END_TO_END)
_KEY_OF_ROW = re.compile(r"row (\d+) key (\d+)$")


def worst_of(report: Report, inputs: Inputs) -> list[tuple[str, str]]:
    """(label, text) of the first failed line; a text is empty where the fault has no such thing."""
    fault = next(r for r in report.stages if r.verdict.failed)
    decided = fault.verdict is not Verdict.MALFORMED
    unit = "" if fault.unit == "gap" else fault.unit
    many = f": {fault.unexplained:,} of {fault.elements:,} elements wrong" if fault.elements else ""
    return [
        ("first fault", f"{fault.stage} ({fault.verdict.value}){many}"),
        ("at", with_physical(fault.at, inputs)),
        ("values" if fault.verdict is Verdict.VIOLATION else "found", _values(report, fault)),
        ("gap", "" if fault.worst is None else f"{fault.worst:.6g} {unit}".rstrip()),
        ("bound", _bound(report, fault) if decided else ""),
        ("would pass", _would_pass(fault) if decided else ""),
    ]


def with_physical(place: str, inputs: Inputs) -> str:
    """A place with (page:offset) behind its row and key, where it has these and lacks that."""
    found = _KEY_OF_ROW.search(place)
    if found is None:
        return place
    row, key = int(found[1]), int(found[2])
    page, offset = divmod(key, inputs.geometry.page_size)
    return f"{place} ({inputs.block_table[inputs.request_of_row[row], page]}:{offset})"


def _values(report: Report, fault: StageResult) -> str:
    """Both values: of the swap at the fault's place where one is listed, else as the line's note has them."""
    swaps = report.selection.swaps if report.selection is not None else ()
    for s in swaps:
        if fault.stage in _SELECTIONS and fault.at == f"row {s.row} key {s.missed}":
            return f"key {s.missed} of score {s.missed_score:.9g} missed for key {s.returned} of {s.returned_score:.9g}"
    return fault.note


def _bound(report: Report, fault: StageResult) -> str:
    return "none: equality is demanded" if fault.bound is None else f"{fault.bound:.6g} ({report.bound})"


def _would_pass(fault: StageResult) -> str:
    if fault.factor is not None:
        return "no multiple of the bound" if isinf(fault.factor) else f"{fault.factor:.4g} times the bound"
    if fault.bound and fault.worst is not None:
        return f"{fault.worst / fault.bound:.4g} times the bound here"
    return "no bound applies"

"""The text of a failed check: what differs, where, by how much, why, and how to see it again."""

from __future__ import annotations

from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.testing.comparison import Comparison
from dsa_crosscheck.compare.testing.isolation import CandidateLost
from dsa_crosscheck.compare.testing.worst import worst_of
from dsa_crosscheck.compare.verdict import MEANING, Verdict
from dsa_crosscheck.reference.inputs import Inputs


class CrosscheckFailure(AssertionError):
    """A check that did not pass. ``report``: the whole comparison, None when there is none."""

    def __init__(self, text: str, report: Report | None = None) -> None:
        super().__init__(text)
        self.report = report


def failure_text(report: Report, inputs: Inputs) -> str:
    """A line for each thing that a reader asks first, then the report."""
    lines = [("compared", _compared(report))]
    if report.verdict.failed:
        lines += worst_of(report, inputs)
        cause = "not looked for" if report.explanation is None else report.explanation.cause
        lines.append(("cause", cause))
        if report.explanation is not None:
            lines.append(("where", report.explanation.where))
    else:
        lines += [("undecided", f"{r.stage}: {r.note}") for r in report.stages if not r.verdict.passed]
        if report.verdict is Verdict.VACUOUS:
            lines.append(("to allow it", "@pytest.mark.dsa(allow_vacuous=True)"))
    lines.append(("replay", report.replay))
    return f"{report.candidate}: {report.verdict.value} - {MEANING[report.verdict]}\n{_table(lines)}\n\n{report}"


def lost_text(lost: CandidateLost, comparison: Comparison) -> str:
    """The same for a candidate whose process is gone."""
    lines = [
        ("compared", f"{comparison.label} on {_named(comparison.case)}, in a process of its own"),
        ("first fault", f"stage {lost.stage}"),
        ("replay", comparison.replay),
    ]
    output = f"\n\nthe last that its process wrote:\n{lost.output}" if lost.output else ""
    return f"{comparison.label} {lost.what}\n{_table(lines)}{output}"


def case_facts(name: str, inputs: Inputs) -> dict[str, object]:
    """What a report says of its case."""
    return {
        "name": name,
        "keys": int(inputs.key_counts.max(initial=0)),
        "requests": inputs.key_counts.size,
        "page": inputs.geometry.page_size,
        "rows": inputs.rows,
        "k": inputs.geometry.topk,
    }


def _compared(report: Report) -> str:
    return (
        f"{report.candidate} with the float64 reference under {report.conventions}, "
        f"on {_named(report.case)}, by the accumulator model {report.bound}"
    )


def _named(case: dict[str, object]) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in case.items() if key != "name")
    return f"{case['name']} ({sizes})"


def _table(lines: list[tuple[str, str]]) -> str:
    return "\n".join(f"  {f'{label}:':13}{text}" for label, text in lines if text)

"""From a report to a passed or failed test."""

from __future__ import annotations

from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.testing.failure import CrosscheckFailure, failure_text
from dsa_crosscheck.compare.testing.settings import Settings
from dsa_crosscheck.compare.verdict import Verdict
from dsa_crosscheck.reference.inputs import Inputs


def conclude(report: Report, inputs: Inputs, settings: Settings) -> None:
    """``CrosscheckFailure`` unless the verdict passes, or is VACUOUS where the test allows that."""
    __tracebackhide__ = True
    if report.verdict.passed or (report.verdict is Verdict.VACUOUS and settings.allow_vacuous):
        return
    raise CrosscheckFailure(failure_text(report, inputs), report)

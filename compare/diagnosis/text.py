"""A diagnosis as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from math import inf

from dsa_crosscheck.compare.diagnosis.explanation import EXPLAINS, Explanation, Trial
from dsa_crosscheck.compare.report import Report
from dsa_crosscheck.compare.verdict import MEANING

WIDTH = 100


def explanation_text(report: Report) -> str:
    """Everything that the diagnosis of a report found and tried, in at most 100 columns."""
    lines = [f"verdict: {report.verdict.value} - {MEANING[report.verdict]}"]
    if report.explanation is None:
        lines += ["nothing to explain"] if not report.verdict.failed else ["no explanation was asked for"]
    else:
        lines += _sections(report.explanation)
    return "\n".join(part for line in lines for part in _folded(line))


def _sections(found: Explanation) -> Iterator[str]:
    yield f"first faulty stage: {found.first_stage}   operand: {found.operand}"
    yield ""
    yield "causes, the most specific of each stage first:"
    yield from [f"  {cause.stage}: {cause.sentence}" for cause in found.causes] or ["  none"]
    yield from (f"  {method}: unexplained" for method in found.unexplained)
    yield ""
    yield "where the errors are:"
    groups = [f"  {group.line}: {group.sentence} ({group.share:.1%} of them)" for group in found.groups]
    extent = f"{found.first_stage}: {found.extent}" if found.extent else "no group holds all errors of a line"
    yield from groups or [f"  {extent}"]
    yield from (f"  {fact}" for fact in found.facts)
    if found.decoded:
        yield from ("", "decoded addresses:", *(f"  {sentence}" for sentence in found.decoded))
    if found.grafts:
        yield ""
        yield "grafts (scores judged with the freedom of unseen codes):"
        yield f"  {'keys':11}{'queries':11}{'scorer':11}{'verdict':14}{'overlap':>8}{'factor':>10}"
        for g in found.grafts:
            yield f"  {g.key:11}{g.query:11}{g.scorer:11}{g.verdict:14}{g.overlap:8.4f}{g.factor:10.3g}"
        yield f"  {found.graft_sentence}"
    yield ""
    left = "" if found.exhausted else "; a work limit left some untried"
    yield f"tried ({len(found.trials)}{left}); what does not explain a part of the data is not tried on the whole:"
    yield from (f"  {_trial(trial)}" for trial in _by_what_is_left(found.trials))


def _by_what_is_left(trials: Sequence[Trial]) -> list[Trial]:
    """Stage by stage, what explains first, then what leaves less unexplained; what could not be measured last."""
    stages = list(dict.fromkeys(trial.stage for trial in trials))

    def place(trial: Trial) -> tuple[int, bool, float]:
        left = inf if trial.residual is None else trial.residual.unexplained
        return stages.index(trial.stage), trial.outcome != EXPLAINS, left

    return sorted(trials, key=place)


def _trial(trial: Trial) -> str:
    left = "" if trial.residual is None else f"   {trial.residual}"
    return f"{trial.stage}: {trial.name}: {trial.outcome}{left}"


def _folded(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)

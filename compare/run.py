"""One cross-check under way: each stage on the reference's inputs, then the candidate's own stages chained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dsa_crosscheck.compare.call import CandidateFault
from dsa_crosscheck.compare.candidates.protocol import FUSED, STAGES, offers
from dsa_crosscheck.compare.chance import chance_note
from dsa_crosscheck.compare.comparable import CacheDescription, describe, disagreement
from dsa_crosscheck.compare.declared import implied_model
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.diagnosis.explanation import Explanation
from dsa_crosscheck.compare.noise import calc_diff, cosine, mean_and_worst, overlaps
from dsa_crosscheck.compare.report import Selection
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import CHECKS, Outputs
from dsa_crosscheck.compare.stages.run import END_TO_END, judge_fused, run_fused
from dsa_crosscheck.compare.stages.scores import score_call, visible
from dsa_crosscheck.compare.stages.selection import SelectionOutcome, judge_selection, select_call
from dsa_crosscheck.compare.verdict import Verdict


class Run:
    """State of one cross-check: what the candidate produced, to be chained end to end."""

    def __init__(
        self,
        candidate: Any,
        setup: Setup,
        max_mismatches: int,
        progress: Callable[[str], None],
    ) -> None:
        self.candidate = candidate
        self.setup = setup
        self.offered = tuple(stage for stage in STAGES if offers(candidate, stage))
        self.max_mismatches = max_mismatches
        self.progress = progress
        self.results: list[StageResult] = []
        package = getattr(candidate, "package", None)
        self.notes: list[str] = [f"the candidate calls {package}"] if package else []
        self.outputs: dict[str, Outputs] = {}
        self.shown: dict[str, np.ndarray] | None = None

    def refused(self) -> bool:
        """Whether the cache that the candidate declares, if any, is not the one that it would be given."""
        declared = getattr(self.candidate, "cache", None)
        if not isinstance(declared, CacheDescription):
            return False
        note = disagreement(describe(self.setup), declared)
        if note:
            self.results.append(StageResult("cache", Verdict.REFUSED, 0, 0, note=note))
        return bool(note)

    def stages(self) -> None:
        """Every offered stage on the reference's inputs."""
        for stage in self.offered:
            self.progress(stage)
            try:
                self.outputs[stage] = CHECKS[stage].run(self.candidate, self.setup)
            except CandidateFault as fault:
                self.results.append(StageResult(stage, fault.verdict, 0, 0, note=str(fault)))
            else:
                self.results += CHECKS[stage].judge(self.outputs[stage], self.setup)

    def judge_as_implied(self) -> None:
        """Note how the scores stand under the model that the conventions imply, where another was declared."""
        implied = implied_model(self.setup.conventions)
        if "score" not in self.outputs or self.setup.model == implied:
            return
        other = replace(self.setup, model=implied, fed=self.setup.fed or self.setup)
        (line,) = CHECKS["score"].judge(self.outputs["score"], other)
        if line.factor is not None:
            self.notes.append(
                f"the candidate declares {self.setup.model.name}; its scores reach {line.factor:.3g} times the bound "
                f"of {implied.name}, which the conventions imply"
            )

    def error(self) -> dict[str, float]:
        """Global measures of the candidate's scores, for comparison with other tools; they decide nothing."""
        if "score" not in self.outputs:
            return {}
        (got,) = self.outputs["score"]
        seen = visible(self.setup.trace.lengths, got.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            mine, theirs = self.setup.shared_scores[0].values[seen], got[seen]
            return {"calc_diff": calc_diff(theirs, mine), "cosine": cosine(theirs, mine)}

    def end_to_end(self) -> Selection | None:
        """The candidate's ``run``, or its own stages chained; None when it does not select."""
        fused = offers(self.candidate, FUSED)
        if not fused and "select" not in self.offered:
            return None
        self.progress(END_TO_END)
        setup = self.setup
        lengths, topk = setup.trace.lengths, setup.inputs.geometry.topk
        try:
            if fused:
                self.shown = run_fused(self.candidate, setup)
                lines, outcome = judge_fused(self.shown, setup, self.max_mismatches)
                self.results += lines
            else:
                outcome = self._chain()
        except CandidateFault as fault:
            self.results.append(StageResult(END_TO_END, fault.verdict, 0, 0, note=str(fault)))
            return Selection(0.0, 0.0, fault.verdict)
        self.results.append(outcome.result)
        shared = overlaps(outcome.selection, setup.trace.selection, lengths, topk)
        note = chance_note(shared, lengths, topk)
        self.notes += [note] if note else []
        certificate = outcome.certificate
        return Selection(
            *mean_and_worst(shared),
            outcome.result.verdict,
            outcome.result.factor,
            certificate.swaps,
            certificate.swap_count,
        )

    def explanation(self) -> Explanation | None:
        """Why it failed."""
        from dsa_crosscheck.compare.diagnosis.explain import explain

        self.progress("diagnosis")
        return explain(self.candidate, self.setup, Evidence(self.outputs, tuple(self.results), self.shown))

    def _chain(self) -> SelectionOutcome:
        """Each stage on what the candidate's own stage before it made."""
        setup = self.setup
        cache, codes, weights = setup.scorer_input
        _, cache = self.outputs.get("store_keys", (None, cache))
        codes, weights = self.outputs.get("encode_query", (codes, weights))
        scores, bound = setup.judge(cache, codes, weights)
        with np.errstate(over="ignore"):  # scores of a wrong candidate's bytes can be anything
            own = scores.values.astype(np.float32)
        if "score" in self.offered:
            own = score_call(self.candidate, setup, cache, codes, weights)
        got = select_call(self.candidate, setup, own)
        return judge_selection(END_TO_END, got, setup, scores.values, bound, self.max_mismatches)

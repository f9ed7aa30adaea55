"""All that a candidate is asked beyond one right answer: repeats, poison, guard bands, other batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsa_crosscheck.compare.candidates.protocol import FUSED, offers
from dsa_crosscheck.compare.repeatability.guard import check_guards
from dsa_crosscheck.compare.repeatability.invariance import check_invariance
from dsa_crosscheck.compare.repeatability.poison import check_poison
from dsa_crosscheck.compare.repeatability.repeats import repeat
from dsa_crosscheck.compare.repeatability.targets import again, first_results
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.compare.stage_result import StageResult
from dsa_crosscheck.compare.stages import Outputs

SCORE_INTO = "score_into"
"""Optional method: ``score`` into memory of the caller."""


def check_repeatability(
    candidate: Any,
    setup: Setup,
    outputs: dict[str, Outputs],
    count: int,
    progress: Callable[[str], None] = lambda stage: None,
) -> list[StageResult]:
    """Lines ``repeat: ...``, ``poison``, ``guard`` and ``batch invariance``, as far as the candidate allows.

    ``outputs``: what its stages made of the reference's inputs. A candidate without ``score``,
    ``select`` and ``run`` has nothing to repeat; ``guard`` needs ``store_keys`` or ``score_into``.
    When a result changes from run to run, only the repeats are reported: every other check would
    compare two runs and blame the difference on something else.
    """
    first = first_results(candidate, setup, outputs)
    results: list[StageResult] = []
    for method, produced in first.items():
        progress(f"{method}, repeats")
        prefix = "run " if method == FUSED and len(first) > 1 else ""
        ordered = setup.conventions.topk_order != "any"
        call = again(candidate, setup, method)
        results += repeat(call, produced, setup.trace.lengths, count, ordered=ordered, prefix=prefix)
    if not all(result.verdict.passed for result in results):
        return results
    staged = [method for method in first if method != FUSED]
    if staged:
        progress("poison")
        results.append(check_poison(candidate, setup, staged))
    stored = outputs["store_keys"][1] if "store_keys" in outputs else None
    scores = outputs["score"][0] if "score" in outputs and offers(candidate, SCORE_INTO) else None
    if stored is not None or scores is not None:
        progress("guard")
        results.append(check_guards(candidate, setup, stored, scores))
    if first and setup.inputs.rows:
        progress("batch invariance")
        results.append(check_invariance(candidate, setup, first))
    return results

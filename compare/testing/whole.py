"""``assert_crosscheck``: a whole candidate on one case."""

from __future__ import annotations

from typing import Any

from dsa_crosscheck.compare.call import Unsupported
from dsa_crosscheck.compare.candidates.registry import ON_GPU
from dsa_crosscheck.compare.repeatability.budget import REPEATS
from dsa_crosscheck.compare.testing.case import Case
from dsa_crosscheck.compare.testing.comparison import Comparison
from dsa_crosscheck.compare.testing.conclusion import conclude
from dsa_crosscheck.compare.testing.failure import CrosscheckFailure, case_facts, lost_text
from dsa_crosscheck.compare.testing.isolation import CandidateLost, run_isolated
from dsa_crosscheck.compare.testing.settings import active
from dsa_crosscheck.compare.testing.skips import skip_unsupported
from dsa_crosscheck.compare.testing.subject import conventions_for, inputs_of, name_of
from dsa_crosscheck.reference.conventions import Conventions
from dsa_crosscheck.reference.inputs import Inputs


def assert_crosscheck(
    candidate: Any,
    case: Case | Inputs,
    *,
    preset: str | Conventions | None = None,
    bound: str | None = None,
    repeat: int = REPEATS,
) -> None:
    """Fail unless ``candidate`` agrees with the float64 reference on ``case``, stage by stage and end to end.

    ``candidate``: an object as in ``Candidate``; a class or function, called with the conventions of
    ``preset``, else of the fixture, if it takes an argument; or a name as on the command line.
    ``case``: what the fixture ``dsa_case`` gives, or any ``Inputs``. ``preset``: conventions to judge by,
    the candidate's own when None. ``bound``: an accumulator model's name, by default the one that the
    conventions imply. ``repeat``: as in ``crosscheck``.

    Raises ``CrosscheckFailure`` when the candidate is wrong, when nothing was decided (VACUOUS unless the
    test is marked ``allow_vacuous``), when it says that it cannot run the case (unless the test is marked
    ``allow_unsupported``: skipped), and, compared in a process of its own, when it crashes or hangs.
    ``ValueError``: an unknown preset or bound, a candidate without a name or conventions, one that can't
    be pickled where it must be, or a class for ``Inputs`` without a preset.
    """
    __tracebackhide__ = True
    settings = active()
    inputs = inputs_of("assert_crosscheck", case)
    judged_by = None if preset is None else conventions_for("assert_crosscheck", case, preset)
    offered = judged_by if judged_by is not None or isinstance(case, Inputs) else case.conventions
    facts = case_facts(name_of(case), inputs)
    comparison = Comparison(candidate, inputs, offered, judged_by, bound, repeat, facts, settings.replay)
    isolate = on_gpu(candidate) if settings.isolate is None else settings.isolate
    try:
        report = run_isolated(comparison, settings.timeout) if isolate else comparison.run(lambda stage: None)
    except Unsupported as error:
        if settings.allow_unsupported:
            skip_unsupported(str(error))
        raise CrosscheckFailure(
            f"{comparison.label} cannot run {name_of(case)}: {error}\n  leave it out with --dsa-fixtures or "
            "--dsa-presets, or ask for a skip with @pytest.mark.dsa(allow_unsupported=True)"
        ) from None
    except CandidateLost as lost:
        raise CrosscheckFailure(lost_text(lost, comparison)) from None
    conclude(report, inputs, settings)


def on_gpu(candidate: Any) -> bool:
    """Whether a candidate, made or not, runs on a GPU, where a fault may cost the process."""
    named = candidate in ON_GPU
    return named or str(getattr(candidate, "device", "cpu")).startswith("cuda")

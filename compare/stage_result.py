"""One line of a comparison: a stage, what differed, and whether that is legitimate."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsa_crosscheck.compare.verdict import Verdict


@dataclass(frozen=True)
class StageResult:
    """Outcome of one stage.

    ``elements`` compared, ``differing`` among them. ``worst``: largest deviation in the stage's own
    unit (``unit``), ``bound``: what it is judged against at that place, None where equality is
    demanded. ``factor``: largest deviation / bound over all elements: the smallest multiple of the
    bound that would pass. ``at``: place of the worst element, in logical and physical terms.
    ``note``: a sentence for a reader, empty when there is nothing to say. ``wrong``: which elements
    nothing admissible explains, in the stage's own axes, for diagnosis; None when there are none.
    """

    stage: str
    verdict: Verdict
    elements: int
    differing: int
    worst: float | None = None
    unit: str = ""
    bound: float | None = None
    factor: float | None = None
    at: str = ""
    note: str = ""
    wrong: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def unexplained(self) -> int:
        """How many elements are wrong; a failed line that marks none counts as one."""
        if self.wrong is None:
            return int(self.verdict.failed)
        return int(self.wrong.sum())

    def record(self) -> dict[str, object]:
        """Plain values for JSON; the mask is given as its count."""
        names = [name for name in self.__dataclass_fields__ if name != "wrong"]
        plain = {name: getattr(self, name) for name in names}
        return plain | {"verdict": self.verdict.value, "unexplained": self.unexplained}

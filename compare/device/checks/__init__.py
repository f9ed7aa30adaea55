"""Whether what was timed is right: for each stage a function of a batch that returns its judge.

The judge takes a batch with the same inputs and some contender's result, and returns what a record says of
it. The expected result is computed once.
"""

from dsa_crosscheck.compare.device.checks.score import score_judge
from dsa_crosscheck.compare.device.checks.select import select_judge
from dsa_crosscheck.compare.device.checks.store import store_judge

__all__ = ["score_judge", "select_judge", "store_judge"]

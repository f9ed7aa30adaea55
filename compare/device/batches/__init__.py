"""Inputs and outputs of one call of each stage, as tensors on one device.

Every batch has ``bytes`` that the stage must move, ``flops`` that it must do (multiplications and additions of
the algorithm; conversions and comparisons are none), ``read_bytes`` for the rotation of inputs, and
``clear()``, which overwrites the result so that a call that writes nothing is seen.
"""

from dsa_crosscheck.compare.device.batches.score import ScoreBatch, ScoreShape, score_batch
from dsa_crosscheck.compare.device.batches.select import SelectBatch, SelectShape, select_batch
from dsa_crosscheck.compare.device.batches.store import StoreBatch, StoreShape, store_batch

__all__ = [
    "ScoreBatch",
    "ScoreShape",
    "SelectBatch",
    "SelectShape",
    "StoreBatch",
    "StoreShape",
    "score_batch",
    "select_batch",
    "store_batch",
]

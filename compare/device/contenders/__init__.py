"""Who is timed on a GPU, a module each.

A module has ``STAGES``, the formats that it does of each stage, and for each of its stages a function of that
name: ``score(batch)``, ``store(batch)`` or ``select(batch)`` plans the call and checks what it must, then
returns the raw launch, which leaves its result in ``batch.scores``, ``batch.cache`` or ``batch.selected``.
A launch may be captured in a CUDA graph, so it asks nothing of the host. ``ImportError`` or ``Unsupported``
where the contender can't be had, or not for this batch.
"""

from dsa_crosscheck.compare.device.contenders.table import CONTENDERS, Contender, contenders_named

__all__ = ["CONTENDERS", "Contender", "contenders_named"]

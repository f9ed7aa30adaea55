"""Structural faults by name: mistakes that no field of ``Conventions`` can express."""

from __future__ import annotations

from dsa_crosscheck.compare.mutants.fault import Fault
from dsa_crosscheck.compare.mutants.pool_faults import POOL_FAULTS
from dsa_crosscheck.compare.mutants.query_faults import QUERY_FAULTS
from dsa_crosscheck.compare.mutants.score_faults import SCORE_FAULTS
from dsa_crosscheck.compare.mutants.select_faults import SELECT_FAULTS
from dsa_crosscheck.compare.mutants.store_faults import STORE_FAULTS

__all__ = ["FAULTS", "Fault"]

FAULTS: dict[str, Fault] = {
    fault.name: fault for fault in (*POOL_FAULTS, *STORE_FAULTS, *QUERY_FAULTS, *SCORE_FAULTS, *SELECT_FAULTS)
}
"""Every fault, in the order of the data's path."""

"""Which bytes a candidate writes or reads, decoded from address-coded input."""

from __future__ import annotations

from typing import Any

from dsa_crosscheck.compare.candidates.protocol import offers
from dsa_crosscheck.compare.diagnosis.decode_score import decode_score
from dsa_crosscheck.compare.diagnosis.decode_store import decode_store
from dsa_crosscheck.compare.setup import Setup

DECODERS = {"store_keys": decode_store, "score": decode_score}


def decode(candidate: Any, setup: Setup, method: str) -> list[str]:
    """Sentences on where ``method`` writes to or reads from; empty for a method without addresses."""
    if method not in DECODERS or not offers(candidate, method):
        return []
    return DECODERS[method](candidate, setup)

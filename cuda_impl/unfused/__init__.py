"""The indexer as frameworks' fallbacks compute it: plain torch operations, one stage a file.

A second opinion beside the fused kernels: it follows any ``Conventions`` and shares no arithmetic
with the float64 reference. It materialises what a fused kernel would keep in registers.
"""

from dsa_crosscheck.cuda_impl.unfused.pipeline import encode_query, score, select, store_keys
from dsa_crosscheck.cuda_impl.unfused.pool import pool

__all__ = ["encode_query", "pool", "score", "select", "store_keys"]

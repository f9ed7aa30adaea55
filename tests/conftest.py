"""Strict JAX for the whole session: an implicit promotion or broadcast in a test run is an error."""

from __future__ import annotations

import os

# Settings of the environment reach JAX however late a test imports it, and the processes that tests start.
os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_NUMPY_DTYPE_PROMOTION"] = "strict"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"

"""Measures one format against exact scores at a million tokens, in a process of its own; prints JSON."""

from __future__ import annotations

import json
import resource
import time

from dsa_crosscheck.compare.studies.precision_cell import PrecisionCell, measure

CELL = PrecisionCell(
    family="gaussian",
    context=1 << 20,
    seed=0,
    rows=64,
    formats=("exact", "fp8-fp32-scale"),
    hadamard=(True,),
    score_dtypes=("fp32",),
    ks=(2048,),
    attributed=False,
)

if __name__ == "__main__":
    begun = time.perf_counter()
    dataset = measure(CELL)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    overlap = dataset.overlap.sel(format="fp8-fp32-scale").values.reshape(-1)
    report = {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "rows": int(overlap.size),
        "overlap": float(overlap.mean()),
    }
    print(json.dumps(report))

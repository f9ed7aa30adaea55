"""One fixture in a few lines of text."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.fixtures.golden.golden import CONTENT_HASH, Golden

_LONG = ("geometry", "conventions", "recipe", "bound_models", "census_counts")


def describe_golden(golden: Golden) -> str:
    """Attributes, sizes, conventions, arrays, how close each row's choice is, and ties."""
    lines = [f"{name}: {value}" for name, value in golden.attributes.items() if name not in (*_LONG, CONTENT_HASH)]
    lines += [f"{name}: {golden.attributes[name]}" for name in _LONG if name in golden.attributes]
    lines += [f"{CONTENT_HASH}: {golden.attributes[CONTENT_HASH]}", "", "arrays:"]
    width = max(len(name) for name in golden.arrays)
    for name, array in golden.arrays.items():
        axes = ", ".join(f"{dim} {size}" for dim, size in zip(array.dims, array.values.shape, strict=True))
        lines.append(f"  {name:{width}}  {array.logical_dtype:16} [{axes}]")
    lines += ["", "row   keys   margin at rank k   largest bound of the row, by model"]
    for row, (length, margin) in enumerate(zip(golden["lengths"], golden["margin"], strict=True)):
        bounds = "  ".join(f"{name} {np.max(bound[row], initial=0.0):.2g}" for name, bound in golden.bounds.items())
        lines.append(f"{row:>3}  {length:>5}   {margin:<16.6g}   {bounds}")
    totals = {name: int(counts.sum()) for name, counts in golden.tie_census.items()}
    lines += ["", "ties: " + ", ".join(f"{name} {total}" for name, total in totals.items())]
    return "\n".join(lines)

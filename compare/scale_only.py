"""One constant ratio: everything right but a factor, and what that factor suggests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

from dsa_crosscheck.reference.geometry import Geometry

LEAST_ELEMENTS = 8
"""Elements that must show the ratio beyond their bound: fewer could share one by chance."""
UNKNOWN_FACTOR = "no known factor"
CLEAR = 16.0
"""An element shows the ratio when it is this many times its own bound."""


@dataclass(frozen=True)
class Ratio:
    """What a factor may come from. ``symbol`` is how it is written, ``value`` gives it for a geometry;
    ``lines``: the parts of a comparison where it can arise."""

    symbol: str
    value: Callable[[Geometry], float]
    lines: tuple[str, ...]
    suggests: str


_SCORES = ("scores", "run: scores")
_SCALES = ("key scales", "query scales")
_WEIGHTS = ("head weights",)

RATIOS: tuple[Ratio, ...] = (
    Ratio("2", lambda g: 2.0, _SCORES, "one operand's fp8 codes are read in the other flavour (e4m3fn, e4m3fnuz)"),
    Ratio("4", lambda g: 4.0, _SCORES, "both operands' fp8 codes are read in the other flavour (e4m3fn, e4m3fnuz)"),
    Ratio("2", lambda g: 2.0, _SCALES, "a power of two is rounded to the next one, or the exponent bias is off by one"),
    Ratio("448/240", lambda g: 448 / 240, _SCALES, "amax is divided by the largest value of the other fp8 flavour"),
    Ratio("448", lambda g: 448.0, (*_SCORES, *_SCALES, *_WEIGHTS), "amax is used where amax / 448 is meant"),
    Ratio("240", lambda g: 240.0, (*_SCORES, *_SCALES, *_WEIGHTS), "amax is used where amax / 240 is meant"),
    Ratio("6", lambda g: 6.0, (*_SCORES, *_SCALES), "amax is used where amax / 6 is meant"),
    Ratio("head_dim", lambda g: float(g.head_dim), _SCORES, "the Hadamard transform is not normalised on both sides"),
    Ratio(
        "head_dim^1/2",
        lambda g: sqrt(g.head_dim),
        (*_SCORES, *_SCALES),
        "the Hadamard transform is not normalised on one side",
    ),
    Ratio(
        "head_dim^1/2",
        lambda g: sqrt(g.head_dim),
        (*_SCORES, *_WEIGHTS),
        "head_dim^-1/2 is missing or applied twice",
    ),
    Ratio("heads^1/2", lambda g: sqrt(g.heads), (*_SCORES, *_WEIGHTS), "heads^-1/2 is missing or applied twice"),
    Ratio(
        "(head_dim heads)^1/2",
        lambda g: sqrt(g.head_dim * g.heads),
        (*_SCORES, *_WEIGHTS),
        "head_dim^-1/2 heads^-1/2 is missing or applied twice",
    ),
    Ratio("heads", lambda g: float(g.heads), _SCORES, "the mean over heads stands for their sum"),
    Ratio("1", lambda g: 1.0, (*_SCORES, *_WEIGHTS), "the sign is reversed"),
)
"""Factors with a known origin. Each also stands for its inverse and its negative."""


@dataclass(frozen=True)
class ConstantRatio:
    """``value``: what was got / what was wanted, the exact number where it is a known one;
    ``slack``: how far, relatively, it may be from that; ``suggests``: what it may come from."""

    value: float
    slack: float
    suggests: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For a reader."""
        origins = "; or ".join(self.suggests) or UNKNOWN_FACTOR
        return f"{self.value:.6g} times the reference everywhere: {origins}"


def constant_ratio(
    got: np.ndarray, want: np.ndarray, bound: np.ndarray, line: str, geometry: Geometry
) -> ConstantRatio | None:
    """The one factor that explains ``got`` as ``want`` (float64) known to ``bound``, or None.

    Arrays of one shape, without the elements that do not count. The factor is read off the element
    that shows it best; every other must follow within its bound, zeros included. None for a factor
    of 1, one that is not finite, any NaN or infinity in ``got``, or when fewer than
    ``LEAST_ELEMENTS`` elements stand clear of their bound.
    """
    got, want, bound = (array.astype(np.float64).reshape(-1) for array in (got, want, bound))
    if not got.size or not (np.isfinite(got).all() and np.isfinite(want).all()):
        return None
    size = np.abs(want)
    if int((size > CLEAR * bound).sum()) < LEAST_ELEMENTS:
        return None
    best = int(np.argmax(size / np.maximum(bound, np.finfo(np.float64).tiny)))
    ratio = float(got[best] / want[best])
    slack = float(bound[best] / size[best]) + float(np.finfo(np.float32).eps)
    if ratio == 0.0 or not isfinite(ratio) or abs(ratio - 1.0) <= 2 * slack:
        return None
    known = [(r, exact) for r in RATIOS if line in r.lines for exact in _forms(r.value(geometry))]
    near = [(r, exact) for r, exact in known if abs(ratio / exact - 1.0) <= 2 * slack]
    exact = near[0][1] if near else ratio
    room = abs(exact) * (bound + size * (slack if not near else np.finfo(np.float32).eps))
    if (np.abs(got - exact * want) > room).any():
        return None
    return ConstantRatio(exact, 0.0 if near else slack, tuple(r.suggests for r, e in near if e == exact))


def _forms(value: float) -> tuple[float, ...]:
    return tuple(form for form in (value, 1 / value, -value, -1 / value) if form != 1.0)

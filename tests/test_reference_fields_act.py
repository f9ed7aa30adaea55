"""Every field of every preset changes some stage: no convention is decoration."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import small_cases

from dsa_crosscheck.reference.conventions import Conventions, flips, get_field, paths
from dsa_crosscheck.reference.inputs import Inputs
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select
from dsa_crosscheck.reference.trace import STAGES, Trace

FLIPS: dict[tuple[str, str], dict[object, Conventions]] = {}
for _name, _preset in PRESETS.items():
    for _path, _value, _flipped in flips(_preset.conventions):
        FLIPS.setdefault((_name, _path), {})[_value] = _flipped
# Scores that no finite input makes: NaN beside ties and infinities, and a row shorter than topk.
SPECIAL_SCORES = np.array([[1.0, np.nan, 2.0, 1.0, np.inf, -np.nan, -np.inf]] * 2)
SPECIAL_LENGTHS = np.array([7, 2])


@functools.cache
def case(name: str) -> Inputs:
    return small_cases.ALL[name]()


@functools.cache
def base_trace(preset: str, name: str) -> Trace:
    return Trace(case(name), PRESETS[preset].conventions)


def arrays(stage: object) -> Iterator[np.ndarray]:
    """The arrays of a stage's output."""
    if isinstance(stage, np.ndarray):
        yield stage
    elif is_dataclass(stage):
        for field in fields(stage):
            yield from arrays(getattr(stage, field.name))


def differs(a: object, b: object) -> bool:
    """Whether two outputs of one stage differ in a shape or a bit."""
    both = list(zip(arrays(a), arrays(b), strict=True))
    return any(x.shape != y.shape or x.dtype != y.dtype or x.tobytes() != y.tobytes() for x, y in both)


def changed(preset: str, flipped: Conventions) -> str | None:
    """Where the flip first shows, as ``case: stage``; None if it never does.

    A flip may be impossible for one geometry (several scales a head cannot be folded into its
    weight); that is no effect, and the next case is tried.
    """
    for name in small_cases.ALL:
        before, after = base_trace(preset, name), Trace(case(name), flipped)
        try:
            shown = next((s for s in STAGES if differs(getattr(before, s), getattr(after, s))), None)
        except ValueError as error:
            if "needs one scale a head" not in str(error):
                raise
            continue
        if shown:
            return f"{name}: {shown}"
    unflipped = PRESETS[preset].conventions
    chosen = [select(SPECIAL_SCORES, SPECIAL_LENGTHS, 3, c) for c in (unflipped, flipped)]
    return "special scores: selection" if differs(*chosen) else None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # flips to the tiny floor overflow the reciprocal
@pytest.mark.parametrize(("preset", "path"), FLIPS, ids=lambda value: value)
def test_every_field_of_every_preset_acts(preset: str, path: str) -> None:
    """Every alternative acts, except one that by definition means the same as the preset's value."""
    now = PRESETS[preset].conventions
    idle = {value for value, flipped in FLIPS[preset, path].items() if changed(preset, flipped) is None}
    same = set()
    if path == "topk_order" and now.topk_order == "any":
        same = {"index"}  # an unspecified order, which the reference writes as index order
    if path == "page_order" and now.key.scale_bytes == 0:
        same = {"token-interleaved"}  # without scales there is nothing to interleave
    assert idle == same
    assert len(FLIPS[preset, path]) > len(same)


def test_every_field_has_an_alternative() -> None:
    """But for what fp4 fixes: MXFP4's scale, and that several scales a head cannot fold into one weight."""
    every = {(name, path) for name, p in PRESETS.items() for path in paths(p.conventions)}
    fixed = {"key.scale": ("fp32", "unit", None), "query.scale": ("fp32", "unit", None), "query_scale_in": ("weights",)}
    assert every - set(FLIPS) == {(name, path) for name in ("deepseek-v4", "sglang-v4-fp4") for path in fixed}
    for name, path in every - set(FLIPS):
        for other in fixed[path]:
            with pytest.raises(ValueError, match=r"should be one of \(.(power-of-two|record).,\)"):
                PRESETS[name].conventions.with_field(path, other)


def test_flips_differ_from_the_preset_at_their_path() -> None:
    for (name, path), values in FLIPS.items():
        now = PRESETS[name].conventions
        for value, flipped in values.items():
            assert get_field(flipped, path) == value != get_field(now, path)

"""Exact statements about stored codes and scales: how many steps, at midpoints, under the floor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsa_crosscheck.compare.code_certificate import code_order
from dsa_crosscheck.compare.diagnosis.evidence import Evidence
from dsa_crosscheck.compare.setup import Setup
from dsa_crosscheck.reference.cache import read_records
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised, code_midpoints, quantise
from dsa_crosscheck.reference.record import unpack_record

LISTED = 8
"""Most midpoints that are listed by value."""


def code_facts(line: str, evidence: Evidence, setup: Setup) -> list[str]:
    """Sentences on a line of key or query codes or scales; none for another line."""
    head_dim = setup.inputs.geometry.head_dim
    if line in ("key codes", "key scales"):
        stored = np.flatnonzero(setup.inputs.slots >= 0)
        codec, values = setup.conventions.key, setup.trace.keys.rotated[stored]
        records = read_records(evidence.outputs["store_keys"][1], setup.layout, setup.inputs.slots[stored])
    elif line in ("query codes", "query scales"):
        codec, values = setup.conventions.query, setup.trace.query.rotated
        records = evidence.outputs["encode_query"][0]
    else:
        return []
    got, want = unpack_record(records, codec, head_dim), quantise(values, codec)
    found = _of_scales(got, codec) if line.endswith("scales") else _of_codes(got, want, values, codec)
    return [f"{line}: {sentence}" for sentence in (*found, *_under_the_floor(got, want, values, codec))]


def _of_scales(got: Quantised, codec: Codec) -> Iterator[str]:
    if codec.scale == "power-of-two":
        mantissa, _ = np.frexp(got.scales)
        odd = int((mantissa != 0.5).sum())
        if odd:
            yield f"{odd:,} of {got.scales.size:,} scales are not powers of two"


def _of_codes(got: Quantised, want: Quantised, values: np.ndarray, codec: Codec) -> Iterator[str]:
    """How many codes differ and by how much; whether only exact midpoints do, and in which direction."""
    mine, theirs = (code_order(q.codes, codec.spec) for q in (got, want))
    differ = mine != theirs
    if not differ.any():
        return
    steps = np.abs(mine - theirs)[differ]
    one, most = int((steps == 1).sum()), int(steps.max())
    size = "all by one step" if most == 1 else f"{one:,} of them by one step, at most by {most:,}"
    yield f"{100 * differ.mean():.3g} % of the codes differ ({differ.sum():,} of {differ.size:,}), {size}"
    if codec.spec.bits > 8:
        return
    scale = want.scales.astype(np.float64)
    groups = scale.shape[-1]
    target = np.abs(values)
    if groups:
        target = (target.reshape(*scale.shape, -1) / scale[..., None]).reshape(values.shape)
    midpoints = code_midpoints(codec.spec)
    at = target[differ]
    if not np.isin(at, midpoints).all():
        return
    grew = (np.abs(mine) > np.abs(theirs))[differ]
    direction = "away from zero" if grew.all() else "either way" if grew.any() else "toward zero"
    which = np.unique(at)
    listed = f" ({', '.join(f'{m:g}' for m in which)})" if which.size <= LISTED else ""
    yield f"disagreement only at exact midpoints, {direction}: {which.size} of {midpoints.size} midpoints{listed}"


def _under_the_floor(got: Quantised, want: Quantised, values: np.ndarray, codec: Codec) -> Iterator[str]:
    """The first group whose scale is the floor's and whose codes or scale are not the reference's."""
    if not codec.scale_bytes or not want.scales.size or got.scales.size != want.scales.size:
        return
    grouped = (*want.scales.shape, -1)
    amax = np.abs(values).reshape(grouped).max(axis=-1)
    assert codec.amax_floor is not None
    low = amax <= codec.amax_floor * (codec.spec.max_value if codec.floor_on == "scale" else 1.0)
    codes = (got.codes.reshape(grouped), want.codes.reshape(grouped))
    other = low & ((codes[0] != codes[1]).any(axis=-1) | (got.scales != want.scales))
    if not other.any():
        return
    at = tuple(int(i) for i in np.argwhere(other)[0])
    element = int(np.argmax(codes[0][at] != codes[1][at]))
    mine, theirs = (
        f"code {c[at][element]:#x} with scale {q.scales[at]:.3g}" for c, q in zip(codes, (got, want), strict=True)
    )
    yield (
        f"{int(other.sum()):,} groups under the amax floor differ; row {at[0]}: amax {amax[at]:.3g}; the reference has "
        f"{theirs} (floor {codec.amax_floor:.3g} on the {codec.floor_on}), here {mine}"
    )

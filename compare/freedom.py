"""How far the stored form of a vector may be from the reference's when its codes are not seen.

A fused kernel shows only its selection. Its codes may legitimately differ wherever the float64 value
lies within its bound of a rounding boundary, and each such code moves the score.
"""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.compare.code_certificate import certify_scales
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.models import FP32_UNIT
from dsa_crosscheck.reference.quantise import Quantised, code_values, dequantise, encode, quantise


def stored_freedom(values: np.ndarray, bound: np.ndarray, stored: Quantised, codec: Codec) -> np.ndarray:
    """Largest |admissible stored value - reference's stored value|, float64 in ``values``' shape.

    ``values`` float64 [..., head_dim] known to ``bound``; ``stored``: the reference's own codes.
    Every admissible scale (the reference's and both ends of its interval) is tried with the lowest
    and the highest code it allows.
    """
    mine = dequantise(stored, codec)
    if codec.spec.bits > 8:
        ends = (quantise(values - bound, codec), quantise(values + bound, codec))
        return np.maximum.reduce([np.abs(dequantise(end, codec) - mine) for end in ends])
    if not codec.scale_bytes:
        return _widest(values, bound, np.ones((*values.shape[:-1], 1)), mine, codec)
    interval = certify_scales(values, bound, stored.scales, codec)
    scales = (stored.scales.astype(np.float64), interval.low, interval.high)
    return np.maximum.reduce([_widest(values, bound, scale, mine, codec) for scale in scales])


def _widest(values: np.ndarray, bound: np.ndarray, scale: np.ndarray, mine: np.ndarray, codec: Codec) -> np.ndarray:
    step = np.repeat(scale, values.shape[-1] // scale.shape[-1], axis=-1)
    target = values / step
    slack = bound / step + 2 * FP32_UNIT * np.abs(target)
    ties = codec.ties or "even"
    ends = (encode(x.astype(np.float32), codec.spec, ties) for x in (target - slack, target + slack))
    return np.maximum.reduce([np.abs(code_values(end, codec.spec) * step - mine) for end in ends])

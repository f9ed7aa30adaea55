"""The bytes of one vector: its values, then its scales."""

from __future__ import annotations

import numpy as np

from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.quantise import Quantised


def pack_record(quantised: Quantised, codec: Codec, *, with_scales: bool = True) -> np.ndarray:
    """uint8 [..., bytes]: little-endian values (fp4: two a byte), then the scales unless told not to.

    Scales are float32, or for fp4 one UE8M0 exponent byte a group.
    """
    codes = quantised.codes
    if codec.spec.bits == 4:
        low, high = (0, 1) if codec.nibbles == "low-even" else (1, 0)
        values = codes[..., low::2] | (codes[..., high::2] << np.uint8(4))
    else:
        values = _bytes(codes)
    if not with_scales or not codec.scale_bytes:
        return values
    return np.concatenate([values, _scale_bytes(quantised.scales, codec)], axis=-1)


def unpack_record(record: np.ndarray, codec: Codec, head_dim: int) -> Quantised:
    """The inverse of ``pack_record``; a record without scale bytes gives empty scales.

    ``ValueError`` when the record has another length than the codec's, with or without scales.
    """
    width = codec.value_bytes(head_dim)
    if record.shape[-1] not in (width, codec.record_bytes(head_dim)):
        raise ValueError(
            f"`unpack_record(record=...)` should have {width} or {codec.record_bytes(head_dim)} bytes "
            f"for {codec.spec.name}, got {record.shape[-1]}"
        )
    values = np.ascontiguousarray(record[..., :width])
    if codec.spec.bits == 4:
        pair = [values & np.uint8(15), values >> np.uint8(4)]
        if codec.nibbles == "high-even":
            pair.reverse()
        codes = np.stack(pair, axis=-1).reshape(*values.shape[:-1], head_dim)
    else:
        codes = values.view(np.dtype(f"<u{codec.spec.bits // 8}"))
    return Quantised(codes, _scales_from_bytes(np.ascontiguousarray(record[..., width:]), codec))


def _bytes(array: np.ndarray) -> np.ndarray:
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return little.view(np.uint8).reshape(*array.shape[:-1], array.shape[-1] * array.itemsize)


def _scale_bytes(scales: np.ndarray, codec: Codec) -> np.ndarray:
    if codec.scale_bytes == 4:
        return _bytes(scales)
    return (np.ascontiguousarray(scales).view(np.uint32) >> np.uint32(23)).astype(np.uint8)


def _scales_from_bytes(raw: np.ndarray, codec: Codec) -> np.ndarray:
    if codec.scale_bytes == 1:
        return ue8m0_values(raw)
    return raw.view(np.dtype("<f4")) if raw.shape[-1] else np.zeros((*raw.shape[:-1], 0), np.float32)


def ue8m0_values(exponents: np.ndarray) -> np.ndarray:
    """float32 2^(e - 127) of UE8M0 bytes; 0 is the subnormal 2^-127, 255 is NaN."""
    bits = exponents.astype(np.uint32) << np.uint32(23)
    bits = np.where(exponents == 0, np.uint32(0x00400000), bits)
    return np.where(exponents == 255, np.uint32(0x7FC00000), bits).view(np.float32)

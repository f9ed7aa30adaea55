"""Reading and writing vectors in the pages of a cache, through the layout's table of addresses."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.unfused.quantise import Quantised, scale_bytes, scales_from_bytes
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.geometry import Geometry
from dsa_crosscheck.reference.layout import PageLayout


def page_layout(codec: Codec, geometry: Geometry, page_order: str) -> PageLayout:
    """Layout of the pages that hold keys of ``codec``."""
    values = codec.value_bytes(geometry.head_dim)
    return PageLayout(geometry.page_size, values, codec.record_bytes(geometry.head_dim) - values, page_order)


def write_keys(cache: torch.Tensor, keys: Quantised, slots: torch.Tensor, codec: Codec, layout: PageLayout) -> None:
    """Stores ``keys`` at ``slots`` int64 [n] of ``cache`` uint8 [pages, page_bytes], in place.

    A slot is page * page_size + offset; a negative one is skipped. Raises ``ValueError`` for a slot
    past the cache or a cache whose pages have another size.
    """
    check_cache(cache, layout)
    limit = cache.shape[0] * layout.page_size
    if slots.numel() and int(slots.max()) >= limit:
        raise ValueError(f"`slots` should be below {limit} ({cache.shape[0]} pages), got {int(slots.max())}")
    stored = slots >= 0
    records = record_bytes(keys, codec)
    write_records(cache, records[stored], slots[stored], page_addresses(layout, cache.device))


def write_records(cache: torch.Tensor, records: torch.Tensor, slots: torch.Tensor, addresses: torch.Tensor) -> None:
    """Stores ``records`` uint8 [n, record bytes] at ``slots`` int64 [n], all of them within ``cache``, in place.

    ``addresses`` [page_size, record bytes] are those of ``page_addresses``. Nothing is checked.
    """
    page_size = addresses.shape[0]
    page = torch.div(slots, page_size, rounding_mode="floor")
    cache[page.unsqueeze(1), addresses[slots % page_size]] = records


def gather_keys(cache: torch.Tensor, pages: torch.Tensor, codec: Codec, layout: PageLayout) -> Quantised:
    """Every key on ``pages`` int64 [rows, n], in order: values [rows, n * page_size, ...] and scales."""
    check_cache(cache, layout)
    return gather_records(cache, pages, codec, layout.value_bytes, page_addresses(layout, cache.device))


def gather_records(
    cache: torch.Tensor, pages: torch.Tensor, codec: Codec, value_bytes: int, addresses: torch.Tensor
) -> Quantised:
    """``gather_keys`` with the layout's ``page_addresses`` at hand; nothing is checked."""
    records = cache[pages][..., addresses].flatten(1, 2)
    return split_record(records, codec, value_bytes)


def record_bytes(vectors: Quantised, codec: Codec) -> torch.Tensor:
    """Values followed by stored scales, uint8 [..., record bytes]."""
    if vectors.scales.shape[-1] == 0:
        return vectors.values
    return torch.cat((vectors.values, scale_bytes(vectors.scales, codec)), dim=-1)


def split_record(records: torch.Tensor, codec: Codec, value_bytes: int) -> Quantised:
    """The inverse of ``record_bytes``; a record of ``value_bytes`` alone has no scales."""
    values, stored = records[..., :value_bytes], records[..., value_bytes:]
    if stored.shape[-1] == 0:
        return Quantised(values, torch.empty(stored.shape, dtype=torch.float32, device=stored.device))
    return Quantised(values, scales_from_bytes(stored, codec))


def check_cache(cache: torch.Tensor, layout: PageLayout) -> None:
    """Raises ``ValueError`` unless ``cache`` is uint8 [pages, page_bytes]."""
    if cache.dtype != torch.uint8 or cache.ndim != 2 or cache.shape[1] != layout.page_bytes:
        raise ValueError(f"`cache` should be uint8 [pages, {layout.page_bytes}], got {cache.dtype} {list(cache.shape)}")


def page_addresses(layout: PageLayout, device: torch.device) -> torch.Tensor:
    """Byte address in its page of each token's record bytes, int64 [page_size, record bytes]."""
    return torch.from_numpy(layout.addresses).to(device)

"""The 512-element latent store: RMSNorm, RoPE, encode, write into a paged cache."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.placement import check_positive
from dsa_crosscheck.cuda_impl.ops.storing import Store, Target
from dsa_crosscheck.cuda_impl.ops.variants import variant_for
from dsa_crosscheck.reference.codec_spec import Codec

FP8_VALUE_BYTES = 448 + 2 * 64
FP8_RECORD_BYTES = FP8_VALUE_BYTES + 8
BF16_RECORD_BYTES = 2 * 512


def latent_page_bytes(codec: Codec, page_size: int) -> int:
    """Bytes of a page: 1024 a token (bf16), or 584 a token rounded up to a multiple of 576 (fp8).

    Raises ``ValueError`` for a codec without a latent kernel or a page size below 1.
    """
    check_positive("latent_page_bytes", "page_size", page_size)
    if variant_for("latent_page_bytes", "latent", codec).format == "bf16":
        return page_size * BF16_RECORD_BYTES
    return -(-page_size * FP8_RECORD_BYTES // FP8_VALUE_BYTES) * FP8_VALUE_BYTES


LATENT_ROWS = Target(
    operand="latent",
    rows="latent",
    dim=512,
    page_bytes=latent_page_bytes,
    extend="store_latent_extend",
    decode="store_latent_decode",
)


def store_latent_extend(
    latent: torch.Tensor,
    norm_weight: torch.Tensor,
    rope_table: torch.Tensor,
    plan: torch.Tensor,
    out_loc: torch.Tensor,
    cache: torch.Tensor,
    *,
    codec: Codec,
    page_size: int,
    ratio: int,
    norm_eps: float,
) -> None:
    """Stores the finished groups of an extend batch into a latent ``cache``, in place.

    - ``latent`` float32 [n, 512], ``norm_weight`` float32 [512]; the last 64 elements are rotated.
    - ``cache`` uint8 [pages, latent_page_bytes(codec, page_size)].
    - fp8 with power-of-two scales: token t's bytes at 576 t are 448 e4m3fn codes (of values rounded
      to bfloat16, scaled in 7 groups of 64) and 64 bfloat16 rope elements; its 7 UE8M0 bytes and a
      zero byte lie at 576 * page_size + 8 t. bf16: 512 bfloat16 a token.

    Plans, skipped rows, slots and errors are those of ``store.store_extend``. The padding at the end
    of a page is not written.

    Source: SGLang deepseek_v4 ``fused_norm_rope_v2.cuh``.
    """
    store = Store(
        "store_latent_extend", LATENT_ROWS, latent, norm_weight, rope_table, cache, codec, page_size, norm_eps
    )
    store.extend(plan, out_loc, ratio)


def store_latent_decode(
    latent: torch.Tensor,
    norm_weight: torch.Tensor,
    rope_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out_loc: torch.Tensor,
    cache: torch.Tensor,
    *,
    codec: Codec,
    page_size: int,
    ratio: int,
    norm_eps: float,
) -> None:
    """Stores one latent row a request where its length ends a group; see ``store_latent_extend``.

    ``seq_lens`` int32 [n] and ``out_loc`` int64 [n] belong to the rows of ``latent``.
    """
    store = Store(
        "store_latent_decode", LATENT_ROWS, latent, norm_weight, rope_table, cache, codec, page_size, norm_eps
    )
    store.decode(seq_lens, out_loc, ratio)

"""The fused index-key store: RMSNorm, RoPE, Hadamard, encode, write into a paged cache."""

from __future__ import annotations

import torch

from dsa_crosscheck.cuda_impl.ops.arguments import check_range, check_tensors
from dsa_crosscheck.cuda_impl.ops.storing import Store, Target
from dsa_crosscheck.cuda_impl.ops.variants import HEAD_DIM
from dsa_crosscheck.reference.codec_spec import Codec

INDEX_KEYS = Target(
    operand="key",
    rows="pooled",
    dim=HEAD_DIM,
    page_bytes=lambda codec, page_size: page_size * codec.record_bytes(HEAD_DIM),
    extend="store_extend",
    decode="store_decode",
)


def store_extend(
    pooled: torch.Tensor,
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
    """Stores the finished groups of an extend batch into ``cache``, in place.

    - ``pooled`` float32 [n, 128], ``norm_weight`` float32 [128].
    - ``rope_table`` float32 [positions, 64]: c0, s0, c1, s1, ... of each raw position.
    - ``plan`` int32 [n, 2]: row i of ``pooled`` has (seq_len, ragged_id), both read as uint32.
      seq_len counts raw tokens to the end of the group, whose RoPE position is seq_len - ratio;
      0xFFFFFFFF (-1) marks a padding row.
    - ``out_loc`` int64 [query tokens], indexed by ragged_id: page * page_size + offset.
    - ``cache`` uint8 [pages, page_size * record]: in each page the values of all tokens, then their
      scales; a record is 132 bytes (fp8), 68 (fp4) or 256 (bf16).

    Padding rows and negative slots write nothing; n = 0 is legal. NaN elements become the NaN code
    of fp8 and bf16, and 0 in fp4. All arithmetic is float32 without contraction, in the orders that
    ``kernels/norm.cuh`` and ``kernels/hadamard.cuh`` state, so the bytes do not depend on the machine.

    Raises ``ValueError`` naming the argument: wrong dtype, shape, layout or device, a codec without a
    kernel, or a plan entry or slot out of range. Two rows that name one slot are not found.

    Source: SGLang deepseek_v4 ``fused_norm_rope_v2.cuh``.
    """
    store = Store("store_extend", INDEX_KEYS, pooled, norm_weight, rope_table, cache, codec, page_size, norm_eps)
    store.extend(plan, out_loc, ratio)


def store_decode(
    pooled: torch.Tensor,
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
    """Stores one row a request into ``cache``, in place, where its length ends a group.

    ``seq_lens`` int32 [n] and ``out_loc`` int64 [n] belong to the rows of ``pooled``. Rows whose
    length is not positive or no multiple of ``ratio``, and negative slots, write nothing. The rest is
    as in ``store_extend``.
    """
    store = Store("store_decode", INDEX_KEYS, pooled, norm_weight, rope_table, cache, codec, page_size, norm_eps)
    store.decode(seq_lens, out_loc, ratio)


def store_keys(
    pooled: torch.Tensor,
    norm_weight: torch.Tensor,
    rope_table: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    *,
    codec: Codec,
    page_size: int,
    norm_eps: float,
) -> None:
    """Stores keys at given slots into ``cache``, in place: ``store_extend`` with a plan made here.

    ``positions`` int64 [n]: raw position of each key's rotation, in the table even where the slot is
    negative; ``slots`` int64 [n], negative ones write nothing.
    """
    store = Store("store_keys", INDEX_KEYS, pooled, norm_weight, rope_table, cache, codec, page_size, norm_eps)
    count = pooled.shape[0]
    check_tensors("store_keys", positions=(positions, torch.int64, (count,)), slots=(slots, torch.int64, (count,)))
    check_range("store_keys", "positions", positions, 0, rope_table.shape[0])
    check_range("store_keys", "slots", slots.clamp(min=-1), -1, store.slots)
    plan = torch.stack([positions + 1, torch.arange(count, device=positions.device)], dim=1).to(torch.int32)
    store.extend(plan, slots, ratio=1)

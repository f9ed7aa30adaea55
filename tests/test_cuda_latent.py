"""The 512-element latent store against a float64 statement."""

from __future__ import annotations

from dataclasses import replace

import exact_path
import ml_dtypes
import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.ops.latent import latent_page_bytes, store_latent_decode, store_latent_extend
from dsa_crosscheck.reference.codec_spec import Codec

FP8 = Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax")
BF16 = Codec("bf16")
FILL = 0xA5


def make_rows(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(5)
    latent = rng.standard_normal((count, 512)) * np.exp2(rng.uniform(-4, 4, (count, 8)).repeat(64, axis=1))
    angle = rng.uniform(-3, 3, (40, 32))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).reshape(40, 64)
    arrays = (latent, rng.uniform(0.5, 1.5, 512), table)
    latent32, weight, table32 = (torch.from_numpy(a.astype(np.float32)) for a in arrays)
    return latent32, weight, table32


def exact_rows(rows: tuple[torch.Tensor, ...], positions: np.ndarray) -> np.ndarray:
    latent, weight, table = (t.numpy() for t in rows)
    return exact_path.rope_last_64(exact_path.rms_norm(latent, weight, 1e-6), table, positions)


def check_fp8(cache: np.ndarray, page_size: int, slots: np.ndarray, exact: np.ndarray) -> None:
    page, token = np.divmod(slots, page_size)
    records = np.stack([cache[p, 576 * t : 576 * t + 576] for p, t in zip(page, token, strict=True)])
    at = 576 * page_size + 8 * token
    scales = np.stack([cache[p, a : a + 8] for p, a in zip(page, at, strict=True)])
    # The values are rounded to bfloat16 first; one within the slack of that boundary may take either
    # neighbour, which is up to half a bfloat16 spacing elsewhere in fp8. Those are left out.
    first = exact_path.bf16(exact[:, :448], exact_path.pair_size(exact[:, :448]))
    rounded = first.codes.view(ml_dtypes.bfloat16).astype(np.float64)
    grouped = rounded.reshape(-1, 7, 64)
    scale = exact_path.ceil_power(np.maximum(np.abs(grouped).max(-1), 1e-4) / 448)
    np.testing.assert_array_equal(scales[:, :7], exact_path.exponent_bytes(scale))
    assert (scales[:, 7] == 0).all()
    scaled = (grouped / scale[..., None]).reshape(-1, 448).clip(-448, 448)
    expected = scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(records[:, :448][first.decided], expected[first.decided])
    assert first.decided.mean() > 0.95
    exact_path.bf16(exact[:, 448:], exact_path.pair_size(exact[:, 448:])).check(
        np.ascontiguousarray(records[:, 448:]).view("<u2")
    )


@pytest.mark.parametrize(("page_size", "page_bytes"), [(64, 37440), (2, 1728), (256, 149760), (1, 1152)])
def test_fp8_pages(page_size: int, page_bytes: int) -> None:
    rows = make_rows(9)
    assert latent_page_bytes(FP8, page_size) == page_bytes
    pages = 12 // page_size + 2
    cache = torch.full((pages, page_bytes), FILL, dtype=torch.uint8)
    slots = np.random.default_rng(0).permutation(pages * page_size)[:9]
    seq_lens = np.array([4, 8, 12, 16, 20, 24, 28, 32, 40], np.int32)
    store_latent_decode(
        *rows,
        torch.from_numpy(seq_lens),
        torch.from_numpy(slots),
        cache,
        codec=FP8,
        page_size=page_size,
        ratio=4,
        norm_eps=1e-6,
    )
    check_fp8(cache.numpy(), page_size, slots, exact_rows(rows, seq_lens - 4))
    assert (cache.numpy()[:, page_size * 584 :] == FILL).all()
    others = np.setdiff1d(np.arange(pages * page_size), slots)
    for slot in others:
        page, token = divmod(int(slot), page_size)
        assert (cache.numpy()[page, 576 * token : 576 * token + 576] == FILL).all()
        assert (cache.numpy()[page, 576 * page_size + 8 * token :][:8] == FILL).all()


def test_extend_plan_skips_rows() -> None:
    rows = make_rows(4)
    plan = torch.tensor([[-1, 7], [8, 2], [12, 0], [4, 1]], dtype=torch.int32)
    out_loc = torch.tensor([3, 0, -2])
    cache = torch.full((1, latent_page_bytes(FP8, 4)), FILL, dtype=torch.uint8)
    store_latent_extend(*rows, plan, out_loc, cache, codec=FP8, page_size=4, ratio=4, norm_eps=1e-6)
    exact = exact_rows(rows, np.array([0, 0, 8, 0]))
    check_fp8(cache.numpy(), 4, np.array([3, 0]), exact[[2, 3]])
    assert (cache[0, 576 : 3 * 576] == FILL).all()


def test_bf16_rows() -> None:
    rows = make_rows(5)
    plan = torch.tensor([[4, 0], [8, 1], [12, 2], [16, 3], [20, 4]], dtype=torch.int32)
    slots = torch.tensor([6, 0, 3, 7, 1])
    cache = torch.full((2, 4 * 1024), FILL, dtype=torch.uint8)
    store_latent_extend(*rows, plan, slots, cache, codec=BF16, page_size=4, ratio=4, norm_eps=1e-6)
    stored = cache.numpy().reshape(8, 1024)
    exact = exact_rows(rows, np.arange(5) * 4)
    exact_path.bf16(exact, exact_path.pair_size(exact)).check(stored[slots.numpy()].view("<u2"))
    assert (stored[[2, 4, 5]] == FILL).all()


def test_a_group_of_zeros_uses_the_floor() -> None:
    latent, weight, table = make_rows(1)
    latent[0, 64:128] = 0
    cache = torch.full((1, latent_page_bytes(FP8, 1)), FILL, dtype=torch.uint8)
    seq_lens, out_loc = torch.tensor([4], dtype=torch.int32), torch.tensor([0])
    store_latent_decode(latent, weight, table, seq_lens, out_loc, cache, codec=FP8, page_size=1, ratio=4, norm_eps=1e-6)
    assert (cache[0, 64:128] == 0).all()
    assert cache[0, 577] == 105  # 1e-4 / 448 lies between 2^-23 and 2^-22


def test_legal_codecs_are_listed() -> None:
    rows = make_rows(1)
    seq_lens, out_loc = torch.tensor([4], dtype=torch.int32), torch.tensor([0])
    cache = torch.zeros((1, 584), dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"\(512, 'fp8-e4m3fn', 'power-of-two', None\), \(512, 'bf16', None, None\)"):
        store_latent_decode(
            *rows,
            seq_lens,
            out_loc,
            cache,
            codec=replace(FP8, scale="fp32", scale_from="divide", apply="reciprocal"),
            page_size=1,
            ratio=4,
            norm_eps=1e-6,
        )
    with pytest.raises(ValueError, match=r"store_latent_decode\(latent=.*512"):
        store_latent_decode(
            rows[0][:, :128].contiguous(),
            *rows[1:],
            seq_lens,
            out_loc,
            cache,
            codec=FP8,
            page_size=1,
            ratio=4,
            norm_eps=1e-6,
        )

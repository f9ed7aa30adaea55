"""On a GPU: the same bytes as the emulation, scores within the bound, and caches past 2^31 bytes.

Run by `pytest -m gpu`, on a machine with a CUDA GPU and nvcc.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from dsa_crosscheck.cuda_impl.build import CUDA_FLAGS, KERNELS, load_cuda_units, target_flag
from dsa_crosscheck.cuda_impl.ops.latent import latent_page_bytes, store_latent_extend
from dsa_crosscheck.cuda_impl.ops.pool import pool
from dsa_crosscheck.cuda_impl.ops.query import encode_query
from dsa_crosscheck.cuda_impl.ops.score import paged_scores
from dsa_crosscheck.cuda_impl.ops.store import store_decode, store_keys
from dsa_crosscheck.cuda_impl.ops.topk import topk
from dsa_crosscheck.reference.codec_spec import Codec
from dsa_crosscheck.reference.presets import PRESETS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

PROBE = Path(__file__).parent / "probes" / "rounding_probe.cu"
TOKENS = 1 << 20
CHUNK = 1 << 15
PAGE = 64
ROPE_ROWS = 4096
TINY = 6 * 2.0**-126
KEY_CODECS = {
    "fp8": PRESETS["sglang-v4-fp8"].conventions.key,
    "fp8-power-of-two": PRESETS["deepseek-v32"].conventions.key,
    "bf16": Codec("bf16"),
    "fp4-toward-zero": PRESETS["sglang-v4-fp4"].conventions.key,
    "fp4-even": PRESETS["deepseek-v4"].conventions.key,
}
LATENT_CODECS = {"fp8": Codec("fp8-e4m3fn", "power-of-two", 1e-4, "amax"), "bf16": Codec("bf16")}


def vectors(chunk: int, count: int, dim: int) -> torch.Tensor:
    """Rows of very different size, zero rows among them."""
    rng = np.random.default_rng(chunk)
    rows = rng.standard_normal((count, dim), np.float32) * np.exp2(rng.integers(-20, 20, (count, 1))).astype(np.float32)
    rows[::1021] = 0.0
    return torch.from_numpy(rows)


def table() -> torch.Tensor:
    angles = np.outer(np.arange(ROPE_ROWS), 160000.0 ** (-np.arange(32) / 32))
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(ROPE_ROWS, 64).astype(np.float32))


def weight(dim: int) -> torch.Tensor:
    return torch.from_numpy(1 + np.random.default_rng(7).standard_normal(dim, np.float32) / 8)


def stored(mode: str, name: str, chunk: int, device: str) -> np.ndarray:
    """Cache bytes of one chunk of tokens, made on ``device``."""
    latent = mode == "latent"
    dim = 512 if latent else 128
    codec = LATENT_CODECS[name] if latent else KEY_CODECS[name]
    rows = vectors(chunk, CHUNK, dim).to(device)
    slots = torch.from_numpy(np.random.default_rng(chunk + 1).permutation(CHUNK)).to(device)
    slots[::97] = -1
    page_bytes = latent_page_bytes(codec, PAGE) if latent else PAGE * codec.record_bytes(dim)
    cache = torch.full((CHUNK // PAGE, page_bytes), 0x5A, dtype=torch.uint8, device=device)
    common = {"codec": codec, "page_size": PAGE, "norm_eps": 1e-6}
    positions = torch.arange(CHUNK, device=device) * 4 % ROPE_ROWS
    if mode == "extend":
        store_keys(rows, weight(dim).to(device), table().to(device), positions, slots, cache, **common)
    elif mode == "decode":
        lengths = (torch.arange(CHUNK, device=device) % ROPE_ROWS).int()
        store_decode(rows, weight(dim).to(device), table().to(device), lengths, slots, cache, ratio=4, **common)
    else:
        plan = torch.stack([positions + 4, torch.arange(CHUNK, device=device)], 1).int()
        store_latent_extend(rows, weight(dim).to(device), table().to(device), plan, slots, cache, ratio=4, **common)
    return cache.cpu().numpy()


def emulated_digest(arguments: tuple[str, str, int]) -> int:
    torch.set_num_threads(1)
    return hash(stored(*arguments, "cpu").tobytes())


@pytest.mark.parametrize(
    ("mode", "name"),
    [(m, n) for m in ("extend", "decode") for n in KEY_CODECS] + [("latent", n) for n in LATENT_CODECS],
)
def test_stored_bytes_are_those_of_the_emulation(mode: str, name: str, pool_of_processes: ProcessPoolExecutor) -> None:
    chunks = range(TOKENS // CHUNK)
    expected = pool_of_processes.map(emulated_digest, [(mode, name, chunk) for chunk in chunks])
    for chunk, digest in zip(chunks, expected, strict=True):
        assert hash(stored(mode, name, chunk, "cuda").tobytes()) == digest, f"chunk {chunk}"


@pytest.fixture(scope="module")
def pool_of_processes():
    # Bytes are compared by Python's own hash, which forked processes share the key of.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as processes:
        list(processes.map(abs, range(os.cpu_count() or 1)))  # forked before this process starts CUDA
        yield processes


def test_the_gpus_own_conversion_to_e4m3_is_the_integer_code_for_every_float() -> None:
    target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    flags = (*CUDA_FLAGS, target_flag(target), f"-I{KERNELS}")
    probe = load_cuda_units(f"rounding-{target}", [PROBE], flags, sorted(KERNELS.glob("*.cuh"))).convert
    step = 1 << 28
    both, one = (torch.empty(step, dtype=torch.uint32, device="cuda") for _ in range(2))
    for start in range(-(1 << 31), 1 << 31, step):
        x = (torch.arange(step, dtype=torch.int32, device="cuda") + start).view(torch.float32)
        probe(x, both, 5)
        for sign, shift in ((1, 0), (-1, 8)):
            probe(sign * x, one, 1)
            codes = both.view(torch.int32) >> shift & 0xFF
            assert torch.equal(codes, one.view(torch.int32)), f"from bits {start}"


@pytest.mark.parametrize("name", ["sglang-v4-fp8", "sglang-v4-bf16", "sglang-v4-fp4", "deepgemm-fp8"])
def test_query_bytes_are_those_of_the_emulation(name: str) -> None:
    c = PRESETS[name].conventions
    query = vectors(3, 512 * 64, 128).reshape(512, 64, 128)
    gate = vectors(4, 512, 64)
    positions = torch.arange(512) * 5 % ROPE_ROWS
    arguments = (query, gate, table(), positions)
    expected = encode_query(*arguments, codec=c.query, bf16_points=c.bf16_points)
    got = encode_query(*(a.cuda() for a in arguments), codec=c.query, bf16_points=c.bf16_points)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine.cpu().view(torch.uint8), theirs.view(torch.uint8))


def test_pooled_bits_are_those_of_the_emulation() -> None:
    kv_score = vectors(5, 4096, 512).clamp(-50, 50)
    bias = vectors(6, 4, 256).clamp(-5, 5)
    assert torch.equal(pool(kv_score.cuda(), bias.cuda()).cpu(), pool(kv_score, bias))


@pytest.mark.parametrize("k", [1, 512, 1024, 2048])
def test_selection_is_that_of_the_emulation(k: int) -> None:
    rng = np.random.default_rng(k)
    rows = rng.standard_normal((24, 20001), np.float32)
    rows[0] = 1.0
    rows[1] = 1.0 + rng.random(20001, np.float32) * 0.245
    rows[2, ::3] = 0.0
    rows[3, ::2] = -0.0
    rows[4, 5:40] = np.nan
    rows[5, :30] = -np.inf
    rows[6] = np.round(rows[6])
    lengths = torch.from_numpy(rng.integers(0, 20002, 24).astype(np.int32))
    lengths[:8] = 20001
    scores = torch.from_numpy(rows)
    expected = topk(scores, lengths, k)
    for _ in range(20):
        assert torch.equal(topk(scores.cuda(), lengths.cuda(), k).cpu(), expected)


def scoring(codec: Codec, page: int, keys: int, rows: int) -> list[torch.Tensor]:
    """Codes, weights, cache, block table, requests and lengths on the CPU, every code finite."""
    rng = np.random.default_rng(page + keys)
    logical = -(-keys // page)
    c = PRESETS[{4: "sglang-v4-fp4", 8: "sglang-v4-fp8", 16: "sglang-v4-bf16"}[codec.spec.bits]]
    codes, weights = encode_query(
        vectors(8, rows * 64, 128).reshape(rows, 64, 128),
        vectors(9, rows, 64).clamp(-3, 3),
        table(),
        torch.arange(rows) % ROPE_ROWS,
        codec=c.conventions.query,
        bf16_points=c.conventions.bf16_points,
    )
    cache = torch.zeros((logical + 3, page * codec.record_bytes(128)), dtype=torch.uint8)
    block_table = torch.from_numpy(rng.permutation(logical + 3)[:logical].astype(np.int32))
    slots = block_table[torch.arange(keys) // page].long() * page + torch.arange(keys) % page
    store_keys(
        vectors(10, keys, 128),
        weight(128),
        table(),
        torch.arange(keys) * 4 % ROPE_ROWS,
        slots,
        cache,
        codec=codec,
        page_size=page,
        norm_eps=1e-6,
    )
    lengths = torch.from_numpy(rng.integers(0, keys + 1, rows).astype(np.int32))
    lengths[0] = keys
    return [codes, weights, cache, block_table[None], torch.zeros(rows, dtype=torch.int32), lengths]


@pytest.mark.parametrize("name", ["fp8", "bf16", "fp4-toward-zero"])
@pytest.mark.parametrize("page", [1, 16, PAGE])
def test_float32_scores_are_those_of_the_emulation(name: str, page: int) -> None:
    """In plain float32 the order of additions is fixed."""
    codec = KEY_CODECS[name]
    arguments = scoring(codec, page, 3001, 6)
    expected = paged_scores(*arguments, codec=codec, page_size=page)
    got = paged_scores(*(a.cuda() for a in arguments), codec=codec, page_size=page, unit="fma")
    assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("name", ["fp8", "bf16", "fp4-toward-zero"])
@pytest.mark.parametrize("unit", [None, "mma", "fma"])
def test_repeats_give_the_same_bits(name: str, unit: str | None) -> None:
    codec = KEY_CODECS[name]
    arguments = [a.cuda() for a in scoring(codec, PAGE, 8191, 8)]
    options = {"codec": codec, "page_size": PAGE, "unit": unit}
    first = paged_scores(*arguments, **options).view(torch.int32)
    for _ in range(20):
        assert torch.equal(paged_scores(*arguments, **options).view(torch.int32), first)


@pytest.mark.parametrize("name", ["fp8", "bf16", "fp4-toward-zero"])
@pytest.mark.parametrize(("page", "unit"), [(PAGE, None), (PAGE, "mma"), (16, "mma"), (16, "fma")])
def test_caches_past_two_to_the_31_bytes(name: str, page: int, unit: str | None) -> None:
    """The same pages before and behind the boundary give the same scores."""
    codec = KEY_CODECS[name]
    low = scoring(codec, page, 2048, 4)
    expected = paged_scores(*(a.cuda() for a in low), codec=codec, page_size=page, unit=unit)
    page_bytes = low[2].shape[1]
    behind = (1 << 31) // page_bytes - low[3].shape[1] // 2
    big = torch.zeros((behind + low[2].shape[0], page_bytes), dtype=torch.uint8, device="cuda")
    big[behind:] = low[2].cuda()
    arguments = [a.cuda() for a in low]
    arguments[2], arguments[3] = big, arguments[3] + behind
    assert torch.equal(paged_scores(*arguments, codec=codec, page_size=page, unit=unit), expected)

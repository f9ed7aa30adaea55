"""The kernels of SGLang as its sources say they read their arguments, in numpy, and a stand-in of its package.

They take plans as bytes, so a wrong plan gives a wrong result. Their arithmetic is ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsa_crosscheck.cuda_impl.ops.store import store_keys
from dsa_crosscheck.reference.presets import PRESETS
from dsa_crosscheck.reference.select import select

EXTEND = np.dtype([("seq_len", "<u4"), ("ragged_id", "<u2"), ("buffer_len", "<u2"), ("pages", "<i4", 2)])
DECODE = np.dtype([("seq_len", "<u4"), ("write_loc", "<i4"), ("pages", "<i4", 2)])
WRITE = np.dtype([("ragged_id", "<u4"), ("write_loc", "<i4")])
CODECS = {132: PRESETS["sglang-v4-fp8"].conventions.key, 68: PRESETS["sglang-v4-fp4"].conventions.key}


def read(plan: torch.Tensor, rows: np.dtype) -> np.ndarray:
    """The rows of a plan; it must be uint8 [n, bytes of a row]."""
    assert plan.dtype == torch.uint8
    assert plan.is_contiguous()
    assert plan.shape[1] == rows.itemsize
    return plan.numpy().view(rows)[:, 0]


def forward(
    rows: torch.Tensor,
    plan: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    table: torch.Tensor,
    out_loc: torch.Tensor,
    cache: torch.Tensor,
    is_decode: bool,
    ratio: int,
    *,
    record: int,
) -> None:
    """``FusedNormRopeKernel``: rows that store, their positions and slots, by the plan alone."""
    count = rows.shape[0]
    assert plan.shape[0] == count
    page_size, rest = divmod(cache.shape[1], record)
    assert rest == 0
    if is_decode:
        seq_len = read(plan, DECODE)["seq_len"].astype(np.int64)
        assert out_loc.shape[0] == count
        stores, loc = seq_len % ratio == 0, out_loc.numpy()
    else:
        extend = read(plan, EXTEND)
        assert out_loc.shape[0] >= count
        seq_len = extend["seq_len"].astype(np.int64)
        stores = seq_len != 0xFFFFFFFF
        loc = out_loc.numpy()[extend["ragged_id"]]
    assert (loc[stores] >= 0).all(), "the kernel does not look for negative slots"
    keep = torch.from_numpy(stores)
    where = torch.from_numpy(seq_len[stores] - ratio), torch.from_numpy(loc[stores])
    store_keys(rows[keep], weight, table, *where, cache, codec=CODECS[record], page_size=page_size, norm_eps=eps)


def prefill(
    state: torch.Tensor,
    kv_input: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor,
    compress: torch.Tensor,
    write: torch.Tensor,
) -> None:
    """``FlashCompress4Kernel::run_prefill``: windows from the state pages and the batch, then the state."""
    dim = out.shape[1]
    assert state.shape[1:] == (4, 4 * dim)
    assert bias.shape == (8, dim)
    raw, pages = kv_input.numpy().astype(np.float64), state.numpy().astype(np.float64)
    plan = read(compress, EXTEND)
    assert plan.size == out.shape[0]
    for row, step in enumerate(plan):
        window = np.empty((8, 2, dim))
        for j in range(8):
            half = j // 4
            if half == 0 and step["seq_len"] <= 4:
                window[j] = [np.zeros(dim), np.full(dim, -np.inf)]
                continue
            from_state = j < step["buffer_len"]
            token = pages[step["pages"][half], j % 4] if from_state else raw[_row(int(step["ragged_id"]) - 7 + j)]
            window[j] = token.reshape(2, 2, dim)[:, half]
        logits = window[:, 1] + bias.numpy()
        share = np.exp(logits - logits.max(axis=0))
        out[row] = torch.from_numpy((window[:, 0] * share).sum(axis=0) / share.sum(axis=0))
    for step in read(write, WRITE):
        state.view(-1, 4 * dim)[int(step["write_loc"])] = kv_input[int(step["ragged_id"])]


def _row(index: int) -> int:
    assert index >= 0, "a window begins before its batch"
    return index


def transform_paged(
    scores: torch.Tensor,
    lengths: torch.Tensor,
    table: torch.Tensor,
    out: torch.Tensor,
    page_size: int,
    metadata: torch.Tensor,
    raw: None,
) -> None:
    """``TopKKernel::transform_paged``: physical slots of the selected keys."""
    assert scores.stride(0) % 4 == 0
    assert scores.shape[0] > 1
    assert metadata.shape == (scores.shape[0] + 1, 2)
    chosen = select(scores.numpy(), lengths.numpy(), out.shape[1], PRESETS["sglang-v4-fp8"].conventions)
    page = np.take_along_axis(table.numpy(), np.maximum(chosen, 0) // page_size, axis=1)
    out.copy_(torch.from_numpy(np.where(chosen < 0, -1, page * page_size + chosen % page_size)))


class Module(dict):
    """Functions by name, as attributes too."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def modules(unit: Any, capability: tuple[int, int]) -> Module:
    """What takes the place of ``sglang_build.load``."""
    return {
        "store": Module(
            forward=lambda *a: forward(*a, record=132),
            forward_fp4=lambda *a: forward(*a, record=68),
        ),
        "pool": Module(prefill=prefill),
        "probe": Module(get_max_active_clusters=lambda blocks, occupancy: 0),
        "topk": Module(plan=lambda lengths, metadata, threshold: None, transform_paged=transform_paged),
    }[unit.name]


def install(site: Path, version: str, sources: dict[str, str] | None = None) -> Path:
    """A distribution ``sglang`` in ``site``, whose import fails; the folder of its sources, if it has any."""
    metadata = site / f"sglang-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    package = site / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('the package needs a serving stack')\n")
    root = package / "kernels" / "jit"
    for name, text in (sources or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root

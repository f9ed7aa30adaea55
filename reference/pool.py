"""C4 pooling: eight overlapping slots to one key, a softmax in each channel."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dsa_crosscheck.reference.exact import float64


def pool(kv_score: np.ndarray, position_bias: np.ndarray) -> np.ndarray:
    """Pool the raw projections of one request, from position 0.

    ``kv_score`` [tokens, 4 * head_dim]: overlap kv, own kv, overlap score, own score.
    ``position_bias`` [ratio, 2 * head_dim]: added to the scores of phase i, overlap half first.
    Group m uses its own ``ratio`` tokens (own halves) and the ``ratio`` tokens before them
    (overlap halves); group 0 has none before it. Returns float64 [tokens // ratio, head_dim];
    trailing tokens that do not fill a group make no key; fewer than ``ratio`` tokens give [0, ...].

    Raises ``ValueError`` when the column counts disagree. Source: DeepSeek-V4 inference/model.py,
    class Compressor.
    """
    ratio, columns = position_bias.shape
    if kv_score.ndim != 2 or kv_score.shape[1] != 2 * columns:
        raise ValueError(f"`pool(kv_score=...)` should be [tokens, {2 * columns}], got {list(kv_score.shape)}")
    groups = kv_score.shape[0] // ratio
    if groups == 0:
        return np.zeros((0, columns // 2))
    return _pool(kv_score[: groups * ratio].reshape(groups, ratio, 2 * columns), position_bias)


@float64()
def _pool(windows: jax.Array, bias: jax.Array) -> jax.Array:
    kv_overlap, kv_own, score_overlap, score_own = jnp.split(windows, 4, axis=-1)
    bias_overlap, bias_own = jnp.split(bias, 2, axis=-1)
    score_overlap = score_overlap + bias_overlap[None]
    score_own = score_own + bias_own[None]
    before = jnp.pad(kv_overlap[:-1], ((1, 0), (0, 0), (0, 0)))
    before_score = jnp.pad(score_overlap[:-1], ((1, 0), (0, 0), (0, 0)), constant_values=-jnp.inf)
    kv = jnp.concatenate([before, kv_own], axis=1)
    share = jax.nn.softmax(jnp.concatenate([before_score, score_own], axis=1), axis=1)
    return jnp.sum(kv * share, axis=1)

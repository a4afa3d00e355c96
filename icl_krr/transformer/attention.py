"""Attention of one head: linear (associative, linear in context) and softmax."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics import matmul


def attend(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    visible: Bool[Array, " T"],
    *,
    kind: str,
    causal: bool,
) -> Float[Array, "T d"]:
    """sum_j pattern_ij v_j, without forming the pattern where the attention is linear."""
    k, v = hide(k, visible), hide(v, visible)
    if kind == "softmax":
        return matmul(pattern(q, k, visible, kind=kind, causal=causal), v)
    if causal:
        states = jnp.cumsum(k[:, :, None] * v[:, None, :], axis=0)
        return jnp.einsum("tk,tkd->td", q, states, precision=jax.lax.Precision.HIGHEST)
    return matmul(q, matmul(k.T, v))


def pattern(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    visible: Bool[Array, " T"],
    *,
    kind: str,
    causal: bool,
) -> Float[Array, "T T"]:
    """The weight of every key for every query: <q_i, k_j>, or its softmax over visible j.

    The first token must be visible, so that no query is left without a key.
    """
    seen = jnp.broadcast_to(visible[None, :], (len(q), len(k)))
    if causal:
        seen = seen & jnp.tri(len(q), len(k), dtype=bool)
    logits = matmul(q, k.T)
    if kind == "linear":
        return jnp.where(seen, logits, 0)
    return jax.nn.softmax(logits, axis=-1, where=seen)


def hide(values: jax.Array, visible: Bool[Array, " T"]) -> jax.Array:
    """Zero at tokens that nobody may read, so that not even a NaN there is felt elsewhere."""
    return jnp.where(visible.reshape(-1, *[1] * (values.ndim - 1)), values, 0)

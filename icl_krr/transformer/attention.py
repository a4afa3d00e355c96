"""Attention of one head: linear, or softmax (computed as a whole or in tiles)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics import accumulator, matmul
from .tiled_attention import tiled_softmax, uses_tiles
from .weights import Spec


class UndividedSoftmax(NamedTuple):
    """Numerator and denominator of a softmax: exp(logits - shift) [T, T], its row sums [T, 1]."""

    weights: Float[Array, "T T"]
    totals: Float[Array, "T 1"]

    def __call__(self, v: Float[Array, "T d"]) -> Float[Array, "T d"]:
        """Apply the pattern to values, sum_j pattern_ij v_j; v must be zero at hidden tokens."""
        return matmul(self.weights, v) / self.totals


def attend(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    visible: Bool[Array, " T"],
    spec: Spec,
) -> Float[Array, "T d"]:
    """Apply attention to values: sum_j pattern_ij v_j.

    Linear attention and tiled softmax do not form the pattern [T, T].
    """
    k = zero_hidden(k, visible)
    if spec.attention == "linear" and not spec.causal and k.shape[1] == v.shape[1] == 1:
        return q * apart(jnp.sum(zero_hidden(k * v, visible), axis=0, keepdims=True))
    v = zero_hidden(v, visible)
    if spec.attention == "softmax":
        if uses_tiles(len(q), spec.streaming):
            return tiled_softmax(q, k, v, visible, spec.causal)[0]
        return undivided_softmax(q, k, visible, spec.causal)(v)
    if spec.causal:
        products = k[:, :, None] * v[:, None, :]
        sums = jnp.cumsum(products[:-1], axis=0, dtype=accumulator(k.dtype))
        states = jnp.concatenate([products[:1], sums.astype(k.dtype)])
        return jnp.einsum("tk,tkd->td", q, states, precision=jax.lax.Precision.HIGHEST)
    # the narrower factor is the one that is transposed
    state = matmul(k.T, v) if k.shape[1] <= v.shape[1] else matmul(v.T, k).T
    return matmul(q, state)


def apart(total: jax.Array) -> jax.Array:
    """The same numbers, but XLA does not fuse their sum with what uses them.

    On a CPU, such a fusion of [T, 1] takes five times as long as its parts, and XLA drops
    `jax.lax.optimization_barrier` before it fuses.
    """
    dtype = jnp.finfo(total.dtype)
    return jax.lax.reduce_precision(total, dtype.nexp, dtype.nmant)


def undivided_softmax(
    q: Float[Array, "T k"], k: Float[Array, "T k"], visible: Bool[Array, " T"], causal: bool
) -> UndividedSoftmax:
    """The softmax of <q_i, k_j> over the visible keys j.

    The result can be applied to any number of values. The first token must be visible, so that
    every query has at least one key.
    """
    logits = jnp.where(visible_pairs(q, k, visible, causal), matmul(q, k.T), -jnp.inf)
    shift = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weights = jnp.exp(logits - shift)
    return UndividedSoftmax(weights, matmul(weights, jnp.ones((len(k), 1), k.dtype)))


def pattern(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    visible: Bool[Array, " T"],
    spec: Spec,
) -> Float[Array, "T T"]:
    """The weight of every key for every query: <q_i, k_j> or its softmax over the visible keys."""
    if spec.attention == "linear":
        return jnp.where(visible_pairs(q, k, visible, spec.causal), matmul(q, k.T), 0)
    weights, totals = undivided_softmax(q, zero_hidden(k, visible), visible, spec.causal)
    return weights / totals


def visible_pairs(
    q: jax.Array, k: jax.Array, visible: Bool[Array, " T"], causal: bool
) -> Bool[Array, "T T"]:
    every = jnp.broadcast_to(visible[None, :], (len(q), len(k)))
    if not causal:
        return every
    return every & jnp.tri(len(q), len(k), k=-1, dtype=bool).at[0, 0].set(True)


def zero_hidden(values: jax.Array, visible: Bool[Array, " T"]) -> jax.Array:
    """Set hidden tokens to zero, so that a NaN at a hidden token does not spread."""
    return jnp.where(visible.reshape(-1, *[1] * (values.ndim - 1)), values, 0)

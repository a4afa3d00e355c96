"""Softmax of one head whose pattern is computed as a whole."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._core.numerics import matmul
from .._core.xla_workarounds import NARROW, matmul_by_columns
from ._blockwise_softmax import all_in_batch
from ._masks import KeyMask, Order, apply_mask, key_rows, local_mask, partial_mask


class FullSoftmax(NamedTuple):
    """Numerator exp(logits - shift) and denominator of a softmax: row sums, and one over these.

    With `diagonal`, the weights of hidden tokens for themselves, the sums include these.
    """

    weights: Float[Array, "T K"]
    totals: Float[Array, "T 1"]
    inverse: Float[Array, "T 1"]
    diagonal: Float[Array, "T 1"] | None = None

    def __call__(self, v: Float[Array, "T d"], key_mask: KeyMask) -> Float[Array, "T d"]:
        """Apply the pattern to the values of all tokens, sum_j pattern_ij v_j."""
        sums = matmul_by_columns(self.weights, key_rows(v, key_mask))
        sums = sums if self.diagonal is None else sums + self.diagonal * v
        return quotient(sums, self.totals, self.inverse)


def full_softmax(
    q: Float[Array, "T k"], k: Float[Array, "T k"], key_mask: KeyMask, order: Order
) -> FullSoftmax:
    """The softmax of <q_i, k_j> over the visible keys j.

    Every token must have at least one key: the first must be visible, or the mask be "own".
    """
    diagonal = diagonal_logits(q, k, key_mask, -jnp.inf) if order.mask == "own" else None
    k = key_rows(k, key_mask)
    weights, shift = exponentials(q, k, diagonal, partial_mask(key_mask, len(k)), order)
    totals = jnp.sum(weights, axis=1, keepdims=True)
    if diagonal is not None:
        diagonal = jnp.exp(diagonal - shift)
        totals += diagonal
    return FullSoftmax(weights, totals, 1 / totals, diagonal)


@jax.custom_jvp
def quotient(a: jax.Array, b: jax.Array, inverse: jax.Array) -> jax.Array:
    """a / b for a known 1 / b.

    The derivative divides, so that XLA does not fuse all that leads to it into the outer products
    [T, K] of a gradient, which would take ten times as long.
    """
    return a * inverse


@quotient.defjvp
def _quotient_jvp(primals, tangents):
    (a, b, inverse), (da, db, _) = primals, tangents
    out = a * inverse
    return out, (da - out * db) / b


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def exponentials(
    q: Float[Array, "T k"],
    k: Float[Array, "K k"],
    diagonal: Float[Array, "T 1"] | None,
    key_mask: Bool[Array, " K"] | None,
    order: Order,
) -> tuple[Float[Array, "T K"], Float[Array, "T 1"]]:
    """exp(logits - shift) [T, K] and the shift of each query, whose derivative is 0.

    For few channels on a CPU, the shift is 0 if exp and its sums cannot overflow without, and XLA
    computes the logits and exp in one loop, because what a branch takes and returns are whole
    arrays.
    """
    few = q.shape[1] < NARROW

    def logits(q: jax.Array, k: jax.Array) -> jax.Array:
        products = channel_by_channel(q, k) if few else matmul(q, k.T)
        return apply_mask(products, key_mask, order, -jnp.inf)

    def shifted(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        masked = logits(q, k)
        largest = jnp.max(masked, axis=-1, keepdims=True)
        shift = largest if diagonal is None else jnp.maximum(largest, diagonal)
        return jnp.exp(masked - shift), shift

    def plain(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jnp.exp(logits(q, k))
        return weights, jnp.zeros_like(weights[:, :1])  # it varies over devices as the weights do

    def cheapest(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.cond(in_range(q, k, diagonal), plain, shifted, q, k)

    if not few:
        return shifted(q, k)
    return jax.lax.platform_dependent(q, k, cpu=cheapest, default=shifted)


@exponentials.defjvp
def _exponentials_jvp(order, primals, tangents):
    (q, k, *_), (dq, dk, *_) = primals, tangents
    weights, shift = exponentials(*primals, order)
    slope = weights * (matmul(dq, k.T) + matmul(q, dk.T))
    return (weights, shift), (slope, jnp.zeros_like(shift))


def channel_by_channel(q: Float[Array, "T k"], k: Float[Array, "K k"]) -> Float[Array, "T K"]:
    """All <q_i, k_j> as sums, which XLA fuses with what uses them."""
    terms = [q[:, c, None] * k[None, :, c] for c in range(q.shape[1])]
    return sum(terms[1:], terms[0])


def in_range(q: jax.Array, k: jax.Array, diagonal: jax.Array | None) -> Bool[Array, ""]:
    """Whether exp of <q_i, k_j> and `diagonal` is neither too large nor too small without a shift.

    Sums of values from 1e-28 to 1e25 (in float64, 1e-230 to 1e225) are then as exact as with one.
    """
    most = float(np.log(float(jnp.finfo(q.dtype).max))) / 4
    small = largest_square(q) * largest_square(k) < most**2
    return all_in_batch(small if diagonal is None else small & (jnp.max(diagonal) < most))


def largest_square(rows: Float[Array, "T k"]) -> Float[Array, ""]:
    """The largest |row|^2."""
    if rows.shape[1] >= NARROW:
        return jnp.max(jnp.sum(rows * rows, axis=-1))
    squares = [rows[:, c] ** 2 for c in range(rows.shape[1])]
    return jnp.max(sum(squares[1:], squares[0]))


def diagonal_logits(
    q: Float[Array, "T k"], k: Float[Array, "T k"], key_mask: KeyMask, fill: float
) -> Float[Array, "T 1"]:
    """The logits <q_i, k_i> of hidden tokens, which read themselves; `fill` at visible tokens."""
    diagonal = jnp.sum(q * k, axis=-1, keepdims=True)
    return jnp.where(local_mask(key_mask)[:, None], fill, diagonal)

"""Softmax of one head whose pattern is computed as a whole."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.numerics import matmul
from .._core.xla_workarounds import matmul_by_columns
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
    logits = apply_mask(matmul(q, k.T), partial_mask(key_mask, len(k)), order, -jnp.inf)
    shift = jnp.max(logits, axis=-1, keepdims=True)
    shift = jax.lax.stop_gradient(shift if diagonal is None else jnp.maximum(shift, diagonal))
    weights = jnp.exp(logits - shift)
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


def diagonal_logits(
    q: Float[Array, "T k"], k: Float[Array, "T k"], key_mask: KeyMask, fill: float
) -> Float[Array, "T 1"]:
    """The logits <q_i, k_i> of hidden tokens, which read themselves; `fill` at visible tokens."""
    diagonal = jnp.sum(q * k, axis=-1, keepdims=True)
    return jnp.where(local_mask(key_mask)[:, None], fill, diagonal)

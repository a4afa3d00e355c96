"""Softmax attention over the tokens of several devices, which pass their keys around a ring."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import devices
from .._core.numerics import accumulation_dtype, power_of_two_below
from .._core.xla_workarounds import joint_barrier
from ..residual._tokens import DividedTokens
from . import _blockwise_softmax
from ._masks import Order, key_positions


def ring_softmax(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    tokens: DividedTokens,
    order: Order,
) -> tuple[Float[Array, "T d"], Float[Array, " T"]]:
    """Compute softmax(q k^T) v for the queries of this device and the keys of all devices.

    The second result are the logarithms of the denominators. `icl_krr.transformer` tells how keys
    and values go around; in the backward pass, their gradients go around with them. k and v must be
    zero at hidden tokens. Forward-mode derivatives are not implemented.
    """
    keys = slice(len(q) - tokens.queries)
    wide = [part.astype(accumulation_dtype(q.dtype)) for part in (q, k[keys], v[keys])]
    number, last = key_positions(tokens, order)
    places = tokens.key_mask[keys], number[keys], last
    out, log_total = wide_ring(*wide, *places, order, tokens.axes)  # pyright: ignore[reportGeneralTypeIssues]
    return out.astype(v.dtype), log_total.astype(q.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def wide_ring(q, k, v, key_mask, number, last, order, axes):
    return forward_ring(q, k, v, key_mask, number, last, order, axes)[:2]


def forward_ring(q, k, v, key_mask, number, last, order, axes):
    """The output, log total, and the total over exp(log total), as `forward_tiles`."""
    q, k, v, key_mask = joint_barrier(q, k, v, key_mask)
    if order.mask:
        v, number, last = joint_barrier(v, number, last)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(v), axis=0))
    size = power_of_two_below(devices.pmax(largest, axes))
    keys = k, _blockwise_softmax.scaled(v, size), key_mask, number

    def round(state, _):
        sums, shift, keys = state
        passed = devices.ppermute(keys, axes, ring=True)
        new_sums, new_shift = _blockwise_softmax.sums_of_tiles(
            q, last, _blockwise_softmax.Tiles(*_blockwise_softmax.all_into_tiles(*keys)), order
        )
        most = jnp.maximum(shift, new_shift)
        sums = sums * jnp.exp(shift - most)[:, None] + new_sums * jnp.exp(new_shift - most)[:, None]
        return (sums, most, passed), None

    start = jnp.zeros((len(q), v.shape[1] + 1), q.dtype), jnp.full(len(q), jnp.finfo(q.dtype).min)
    (sums, shift, _), _ = jax.lax.scan(round, (*start, keys), length=jax.lax.axis_size(axes))
    return _blockwise_softmax.quotients(sums, shift, size)


def forward_with_residuals(q, k, v, key_mask, number, last, order, axes):
    out, log_total, rounding = forward_ring(q, k, v, key_mask, number, last, order, axes)
    return (out, log_total), (q, k, v, key_mask, number, last, out, log_total, rounding)


def backward_ring(order, axes, residuals, cotangents):
    q, k, v, key_mask, number, last, out, log_total, rounding = residuals
    queries = _blockwise_softmax.slopes(q, last, out, log_total, rounding, *cotangents)

    def round(state, _):
        d_q, keys, sums = state
        new_d_q, *more = _blockwise_softmax.slopes_of_tiles(
            queries, _blockwise_softmax.Tiles(*_blockwise_softmax.all_into_tiles(*keys)), order
        )
        parts = [_blockwise_softmax.from_tiles(tiles, len(k)) for tiles in more]
        sums = [s + part for s, part in zip(sums, parts, strict=True)]
        return (d_q + new_d_q, *devices.ppermute((keys, sums), axes, ring=True)), None

    start = (jnp.zeros_like(q), (k, v, key_mask, number), [jnp.zeros_like(k), jnp.zeros_like(v)])
    (d_q, _, (d_k, d_v)), _ = jax.lax.scan(round, start, length=jax.lax.axis_size(axes))
    return d_q, d_k, d_v, None, None, None


wide_ring.defvjp(forward_with_residuals, backward_ring)

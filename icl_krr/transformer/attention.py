"""Attention of one head: linear, or softmax (computed as a whole or in tiles)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import devices
from ..numerics import NARROW, accumulator, apart, matmul, sum_of_few, times_columns
from ..residual.tokens import DividedTokens
from .ring_attention import ring_softmax
from .tiled_attention import tiled_softmax, uses_tiles
from .undivided_softmax import own_logits, undivided_softmax
from .visible import Visible, hide, shown, zero_hidden
from .weights import Spec

LONG = 2048
"""With more tokens, sums of products of single channels are faster on a CPU in another form: the
products pass a selection before they are added, and XLA is kept from fusing the sum with what uses
it. With fewer tokens, this form is slower."""


def attend(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    visible: Visible,
    spec: Spec,
    log_gate: Float[Array, " T"] | None = None,
) -> Float[Array, "T d"]:
    """Apply attention to values: sum_j pattern_ij v_j.

    Linear attention and tiled softmax do not form the pattern [T, T].
    """
    if log_gate is not None:
        check_gate(visible, spec)
    divided = isinstance(visible, DividedTokens)
    if spec.attention == "softmax" and not (divided or uses_tiles(len(q), spec.streaming)):
        return undivided_softmax(q, k, visible, spec.order)(v, visible)
    if spec.attention == "linear" and not spec.causal:
        return linear(q, k, v, visible)
    if spec.attention == "linear":
        mixed = linear_causal(q, k, v, visible, spec.order, log_gate)
        return mixed + own_logits(q, k, visible, 0.0) * v if spec.order == "own" else mixed
    all_k, all_v = k, v
    k, v = (zero_hidden(part, visible) for part in (k, v))
    if divided:
        mixed, log_total = ring_softmax(q, k, v, visible, spec.order)
    else:
        mixed, log_total = tiled_softmax(q, k, v, jnp.asarray(visible), spec.order)
    if spec.order == "own":
        own = jax.nn.sigmoid(own_logits(q, all_k, visible, -jnp.inf) - log_total[:, None])
        return mixed + own * (all_v - mixed)
    return mixed


def linear(
    q: Float[Array, "T k"], k: Float[Array, "T k"], v: Float[Array, "T d"], visible: Visible
) -> Float[Array, "T d"]:
    """Linear attention to all visible tokens, q (k^T v), in the way that XLA computes fastest."""
    k, all_v = zero_hidden(k, visible), v
    v = zero_hidden(v, visible)
    if k.shape[1] == v.shape[1] == 1 and len(q) > LONG:
        state = apart(jnp.sum(zero_hidden(k * all_v, visible), axis=0, keepdims=True))
        # the same as the product, also for NaN, but its gradient sums what is selected
        return jnp.where(q == q, q * total(state, visible), q)
    if v.shape[1] >= NARROW or len(q) > LONG:
        # the narrower factor is the one that is transposed
        state = matmul(k.T, v) if k.shape[1] <= v.shape[1] else matmul(v.T, k).T
        return matmul(q, total(state, visible))
    if k.shape[1] == 1:
        return q * total(jax.vmap(sum_of_few, 1)(k * v)[None], visible)
    state = jnp.stack([matmul(column, k) for column in v.T], axis=1)
    return times_columns(q, total(state, visible))


def linear_causal(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    visible: Visible,
    order: str,
    log_gate: Float[Array, " T"] | None,
) -> Float[Array, "T d"]:
    """Linear attention to earlier tokens, and to the token itself unless `order` is "exclusive".

    The first token attends to itself, if it is visible.
    """
    first = k[:1, :, None] * v[:1, None, :]
    products = zero_hidden(k, visible)[:, :, None] * zero_hidden(v, visible)[:, None, :]
    wide, shift = accumulator(k.dtype), order == "exclusive"
    gates = None if log_gate is None else jnp.exp(jnp.diff(log_gate.astype(wide), prepend=0))
    if gates is None:
        sums = jnp.cumsum(products, axis=0, dtype=wide)
    else:
        sums = decayed_sums(products.astype(wide), gates)
    if isinstance(visible, DividedTokens):
        own, asked = sums[-1], len(q) - visible.queries
        sums += devices.sum_before(own, visible.axes)[None]
        sums = sums.at[asked - shift :].set(devices.total(own, visible.axes)[None])
    if shift:
        before = sums[:-1] if gates is None else sums[:-1] * gates[1:, None, None]
        sums = jnp.concatenate([first, before.astype(k.dtype)])
    states = sums.astype(k.dtype)
    return jnp.einsum("tk,tkd->td", q, states, precision=jax.lax.Precision.HIGHEST)


def decayed_sums(terms: Float[Array, "T k d"], gates: Float[Array, " T"]) -> Float[Array, "T k d"]:
    """S_i = gate_i S_{i-1} + term_i. The gates are never inverted, so none can overflow."""

    def join(earlier: tuple, later: tuple) -> tuple:
        (a, s), (b, t) = earlier, later
        return a * b, b * s + t

    return jax.lax.associative_scan(join, (gates[:, None, None], terms))[1]


def check_gate(visible: Visible, spec: Spec) -> None:
    if spec.attention != "linear" or not spec.causal or isinstance(visible, DividedTokens):
        raise ValueError(
            "log_gate needs causal linear attention on one device, got "
            f"attention={spec.attention!r}, causal={spec.causal}"
        )


def total(part: jax.Array, visible: Visible) -> jax.Array:
    """The sum over all tokens, of which this device may hold a part."""
    return devices.total(part, visible.axes) if isinstance(visible, DividedTokens) else part


def pattern(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    visible: Visible,
    spec: Spec,
    log_gate: Float[Array, " T"] | None = None,
) -> Float[Array, "T T"]:
    """The weight of every key for every query: <q_i, k_j> or its softmax over the visible keys."""
    if spec.attention == "linear":
        weights, seen = matmul(q, k.T), shown(visible, len(k))
        if log_gate is not None:
            check_gate(visible, spec)
            gaps = log_gate[:, None] - log_gate[None, :]
            weights *= jnp.exp(hide(gaps, seen, spec.order, 0.0))
        weights = hide(weights, seen, spec.order, 0.0)
        own = own_logits(q, k, visible, 0.0) if spec.order == "own" else None
    else:
        weights, totals, _, own = undivided_softmax(q, k, visible, spec.order)
        weights = jnp.pad(weights / totals, ((0, 0), (0, len(k) - weights.shape[1])))
        own = None if own is None else own / totals
    return weights if own is None else weights + jnp.diag(own[:, 0])

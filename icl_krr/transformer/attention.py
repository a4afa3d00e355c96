"""Attention of one head: linear, or softmax (computed as a whole or in tiles)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import devices
from ..numerics import accumulator, apart, matmul, sum_of_few
from ..residual.tokens import DividedTokens
from .ring_attention import ring_softmax
from .tiled_attention import tiled_softmax, uses_tiles
from .weights import Spec

Visible = Bool[Array, " T"] | Bool[np.ndarray, " T"] | DividedTokens
"""The tokens that can be read as keys. A NumPy array is a constant of the traced program.
`DividedTokens` are those of one device; other devices hold more."""


LONG = 2048
"""With more tokens, XLA on a CPU sums products of single channels faster if the products are masked
and the sum is computed apart from what uses it. With fewer tokens, both cost time."""


class UndividedSoftmax(NamedTuple):
    """Numerator and denominator of a softmax: exp(logits - shift) [T, K], its row sums [T, 1].

    With `own` [T, 1], the weights of hidden tokens for themselves, the sums include these.
    """

    weights: Float[Array, "T K"]
    totals: Float[Array, "T 1"]
    own: Float[Array, "T 1"] | None = None

    def __call__(self, v: Float[Array, "T d"], visible: Visible) -> Float[Array, "T d"]:
        """Apply the pattern to the values of all tokens, sum_j pattern_ij v_j."""
        sums = matmul(self.weights, of_keys(v, visible))
        return (sums if self.own is None else sums + self.own * v) / self.totals


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
    if spec.attention == "linear" and spec.causal:
        mixed = linear_causal(q, k, v, visible, spec.order, log_gate)
        return mixed + own_logits(q, k, visible, 0.0) * v if spec.order == "own" else mixed
    all_k, all_v = k, v
    k = zero_hidden(k, visible)
    if spec.attention == "linear" and k.shape[1] == v.shape[1] == 1 and len(q) > LONG:
        state = apart(jnp.sum(zero_hidden(k * v, visible), axis=0, keepdims=True))
        return q * total(state, visible)
    v = zero_hidden(v, visible)
    if spec.attention == "linear":
        if v.shape[1] < 8 and len(q) <= LONG:
            if k.shape[1] == 1:
                return q * total(jax.vmap(sum_of_few, 1)(k * v)[None], visible)
            state = jnp.stack([matmul(column, k) for column in v.T], axis=1)
            state = total(state, visible)
            return jnp.stack([matmul(q, column) for column in state.T], axis=1)
        # the narrower factor is the one that is transposed
        state = matmul(k.T, v) if k.shape[1] <= v.shape[1] else matmul(v.T, k).T
        return matmul(q, total(state, visible))
    if divided:
        mixed, log_total = ring_softmax(q, k, v, visible, spec.order)
    else:
        mixed, log_total = tiled_softmax(q, k, v, jnp.asarray(visible), spec.order)
    if spec.order == "own":
        own = jax.nn.sigmoid(own_logits(q, all_k, visible, -jnp.inf) - log_total[:, None])
        return mixed + own * (all_v - mixed)
    return mixed


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


def undivided_softmax(
    q: Float[Array, "T k"], k: Float[Array, "T k"], visible: Visible, order: str
) -> UndividedSoftmax:
    """The softmax of <q_i, k_j> over the visible keys j.

    The result can be applied to any number of values. Every token must have at least one key: the
    first token must be visible, or the `order` be "own".
    """
    own = own_logits(q, k, visible, -jnp.inf) if order == "own" else None
    k = of_keys(k, visible)
    # XLA's products on a CPU are slow for an odd number of channels
    q, k = (jnp.pad(part, ((0, 0), (0, part.shape[1] % 2))) for part in (q, k))
    logits = hide(matmul(q, k.T), visible, order, -jnp.inf)
    largest = jnp.max(logits, axis=-1, keepdims=True)
    if own is not None:
        largest = jnp.maximum(largest, own)
    shift = jax.lax.stop_gradient(largest)
    weights = jnp.exp(logits - shift)
    totals = matmul(weights, jnp.ones((len(k), 1), k.dtype))
    if own is None:
        return UndividedSoftmax(weights, totals)
    own = jnp.exp(own - shift)
    return UndividedSoftmax(weights, totals + own, own)


def own_logits(
    q: Float[Array, "T k"], k: Float[Array, "T k"], visible: Visible, fill: float
) -> Float[Array, "T 1"]:
    """The logits <q_i, k_i> of hidden tokens, which read themselves; `fill` at visible tokens."""
    own = jnp.sum(q * k, axis=-1, keepdims=True)
    return jnp.where(mask_of(visible)[:, None], fill, own)


def pattern(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    visible: Visible,
    spec: Spec,
    log_gate: Float[Array, " T"] | None = None,
) -> Float[Array, "T T"]:
    """The weight of every key for every query: <q_i, k_j> or its softmax over the visible keys."""
    if spec.attention == "linear":
        weights = matmul(q, k.T)
        if log_gate is not None:
            check_gate(visible, spec)
            gaps = log_gate[:, None] - log_gate[None, :]
            weights *= jnp.exp(hide(gaps, visible, spec.order, 0.0))
        weights = hide(weights, visible, spec.order, 0.0)
        own = own_logits(q, k, visible, 0.0) if spec.order == "own" else None
    else:
        weights, totals, own = undivided_softmax(q, k, visible, spec.order)
        weights = jnp.pad(weights / totals, ((0, 0), (0, len(k) - weights.shape[1])))
        own = None if own is None else own / totals
    return weights if own is None else weights + jnp.diag(own[:, 0])


def hide(pairs: jax.Array, visible: Visible, order: str, fill: float) -> jax.Array:
    """Set the entries [T, K] of the keys that a query does not read to `fill`."""
    visible, (tokens, keys) = mask_of(visible), pairs.shape
    if not (isinstance(visible, np.ndarray) and visible[:keys].all()):
        pairs = jnp.where(visible[None, :keys], pairs, fill)
    if order:
        last = -1 if order == "exclusive" else 0
        earlier = jnp.tri(tokens, keys, k=last, dtype=bool).at[0, 0].set(True)
        pairs = jnp.where(earlier, pairs, fill)
    return pairs


def of_keys(values: jax.Array, visible: Visible) -> jax.Array:
    """The tokens up to the last one that can be a key, with zeros at hidden tokens."""
    if not isinstance(visible, np.ndarray):
        return zero_hidden(values, visible)
    keys = int(np.max(np.flatnonzero(visible))) + 1
    return values[:keys] if visible[:keys].all() else zero_hidden(values, visible)[:keys]


def mask_of(visible: Visible) -> jax.Array | np.ndarray:
    return visible.visible if isinstance(visible, DividedTokens) else visible


def zero_hidden(values: jax.Array, visible: Visible) -> jax.Array:
    """Set hidden tokens to zero, so that a NaN at a hidden token does not spread."""
    visible = mask_of(visible)
    return jnp.where(visible.reshape(-1, *[1] * (values.ndim - 1)), values, 0)

"""Attention of one head: linear, or softmax (computed as a whole or in tiles)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .. import devices
from ..numerics import accumulator, matmul
from ..residual.tokens import DividedTokens
from .ring_attention import ring_softmax
from .tiled_attention import everywhere, tiled_softmax, uses_tiles
from .weights import Spec

Visible = Bool[Array, " T"] | Bool[np.ndarray, " T"] | DividedTokens
"""The tokens that can be read as keys. A NumPy array is a constant of the traced program.
`DividedTokens` are those of one device; other devices hold more."""


LONG = 2048
"""With more tokens, XLA on a CPU sums products of single channels faster if the products are masked
and the sum is computed apart from what uses it. With fewer tokens, both cost time."""

NARROW = 8
"""With fewer channels, XLA on a CPU computes sums of products faster than matrix products."""


class UndividedSoftmax(NamedTuple):
    """The numerator exp(logits - shift) of a softmax, and 1 / (its row sums).

    With `own`, the weights of hidden tokens for themselves, the sums include these.
    """

    weights: Float[Array, "T K"]
    totals: Float[Array, "T 1"]
    scale: Float[Array, "T 1"]
    own: Float[Array, "T 1"] | None = None

    def __call__(self, v: Float[Array, "T d"], visible: Visible) -> Float[Array, "T d"]:
        """Apply the pattern to the values of all tokens, sum_j pattern_ij v_j."""
        sums = matmul(self.weights, of_keys(v, visible))
        return over(sums if self.own is None else sums + self.own * v, self.totals, self.scale)


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
    if spec.attention == "linear" and k.shape[1] == v.shape[1] == 1:
        if len(q) > LONG:
            state = apart(jnp.sum(zero_hidden(k * v, visible), axis=0, keepdims=True))
        else:
            state = jnp.sum(k * zero_hidden(v, visible), axis=0, keepdims=True)
        return q * total(state, visible)
    v = zero_hidden(v, visible)
    if spec.attention == "linear":
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


def apart(total: jax.Array) -> jax.Array:
    """The same numbers, but XLA does not fuse their sum with what uses them.

    On a CPU, such a fusion of [T, 1] takes five times as long as its parts, and XLA drops
    `jax.lax.optimization_barrier` before it fuses.
    """
    dtype = jnp.finfo(total.dtype)
    return jax.lax.reduce_precision(total, dtype.nexp, dtype.nmant)


def undivided_softmax(
    q: Float[Array, "T k"], k: Float[Array, "T k"], visible: Visible, order: str
) -> UndividedSoftmax:
    """The softmax of <q_i, k_j> over the visible keys j.

    The result can be applied to any number of values. Every token must have at least one key: the
    first token must be visible, or the `order` be "own".
    """
    own = own_logits(q, k, visible, -jnp.inf) if order == "own" else None
    k = of_keys(k, visible)
    weights, shift = exponentials(q, k, own, shown(visible, len(k)), order)
    totals = matmul(weights, jnp.ones((len(k), 1), k.dtype))
    if own is None:
        return UndividedSoftmax(weights, totals, 1 / totals)
    own = jnp.exp(own - shift)
    return UndividedSoftmax(weights, totals + own, 1 / (totals + own), own)


@jax.custom_jvp
def over(a, b, inverse):
    return a * inverse


@over.defjvp
def _over_jvp(primals, tangents):
    a, b, inverse = primals
    da, db, _ = tangents
    out = a * inverse
    return out, (da - out * db) / b


@partial(jax.custom_jvp, nondiff_argnums=(4,))
def exponentials(
    q: Float[Array, "T k"],
    k: Float[Array, "K k"],
    own: Float[Array, "T 1"] | None,
    seen: Bool[Array, " K"] | None,
    order: str,
) -> tuple[Float[Array, "T K"], Float[Array, "T 1"]]:
    """exp(logits - shift) [T, K] and the shift of each query, whose derivative is 0.

    On a CPU, the shift is 0 if exp and its sums cannot overflow without, and XLA computes few
    channels and exp in one loop, because what a branch takes and returns are whole arrays.
    """

    products = channel_by_channel if q.shape[1] < NARROW else inner_products

    def logits(q: jax.Array, k: jax.Array) -> jax.Array:
        return hide(products(q, k), seen, order, -jnp.inf)

    def shifted(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        made = logits(q, k)
        largest = jnp.max(made, axis=-1, keepdims=True)
        shift = largest if own is None else jnp.maximum(largest, own)
        return jnp.exp(made - shift), shift

    def plain(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.exp(logits(q, k)), jnp.zeros((len(q), 1), q.dtype)

    def cheapest(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.cond(in_range(q, k), plain, shifted, q, k)

    return jax.lax.platform_dependent(q, k, cpu=cheapest, default=shifted)


@exponentials.defjvp
def _exponentials_jvp(order, primals, tangents):
    (q, k, *_), (dq, dk, *_) = primals, tangents
    weights, shift = exponentials(*primals, order)
    slope = weights * (inner_products(dq, k) + inner_products(q, dk))
    return (weights, shift), (slope, jnp.zeros_like(shift))


def inner_products(q: Float[Array, "T k"], k: Float[Array, "K k"]) -> Float[Array, "T K"]:
    """All <q_i, k_j>."""
    # XLA's products on a CPU are slow for an odd number of channels
    q, k = (jnp.pad(part, ((0, 0), (0, part.shape[1] % 2))) for part in (q, k))
    return matmul(q, k.T)


def channel_by_channel(q: Float[Array, "T k"], k: Float[Array, "K k"]) -> Float[Array, "T K"]:
    """All <q_i, k_j> as sums, which XLA fuses with what uses them."""
    terms = [q[:, c, None] * k[None, :, c] for c in range(q.shape[1])]
    return sum(terms[1:], terms[0])


def in_range(q: jax.Array, k: jax.Array) -> Bool[Array, ""]:
    """Whether exp of all <q_i, k_j> leaves half of the exponents to sums and to values.

    The bound on the logits is that of Cauchy and Schwarz.
    """
    bound = jnp.max(jnp.sum(q * q, axis=-1)) * jnp.max(jnp.sum(k * k, axis=-1))
    return everywhere(bound < float(np.log(float(jnp.finfo(q.dtype).max)) / 2) ** 2)


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
        weights, seen = matmul(q, k.T), shown(visible, len(k))
        if log_gate is not None:
            check_gate(visible, spec)
            gaps = log_gate[:, None] - log_gate[None, :]
            weights *= jnp.exp(hide(gaps, seen, spec.order, 0.0))
        weights = hide(weights, seen, spec.order, 0.0)
        own = own_logits(q, k, visible, 0.0) if spec.order == "own" else None
    else:
        weights, _, scale, own = undivided_softmax(q, k, visible, spec.order)
        weights = jnp.pad(weights * scale, ((0, 0), (0, len(k) - weights.shape[1])))
        own = None if own is None else own * scale
    return weights if own is None else weights + jnp.diag(own[:, 0])


def hide(pairs: jax.Array, seen: Any, order: str, fill: float) -> jax.Array:
    """Set the entries [T, K] of the keys that a query does not read to `fill`."""
    tokens, keys = pairs.shape
    if seen is not None:
        pairs = jnp.where(seen[None], pairs, fill)
    if order:
        last = -1 if order == "exclusive" else 0
        earlier = jnp.tri(tokens, keys, k=last, dtype=bool).at[0, 0].set(True)
        pairs = jnp.where(earlier, pairs, fill)
    return pairs


def shown(visible: Visible, keys: int) -> jax.Array | np.ndarray | None:
    """Which of the first tokens can be read as keys [K]; None if it is known that all can."""
    mask = mask_of(visible)[:keys]
    return None if isinstance(mask, np.ndarray) and mask.all() else mask


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

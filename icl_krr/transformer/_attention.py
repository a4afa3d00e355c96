"""Attention of one head: linear, or softmax (computed as a whole or in tiles)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import devices
from .._core.numerics import accumulation_dtype, matmul
from .._core.xla_workarounds import sum_of_rows
from ..residual._tokens import DividedTokens
from . import _masks
from ._blockwise_softmax import blockwise_softmax, is_blockwise
from ._full_softmax import diagonal_logits, full_softmax
from ._ring_attention import ring_softmax
from ._weights import Spec


def attend(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    key_mask: _masks.KeyMask,
    spec: Spec,
    log_gate: Float[Array, " T"] | None = None,
    window: int | None = None,
) -> Float[Array, "T d"]:
    """Apply attention to values: sum_j pattern_ij v_j.

    Linear attention and tiled softmax do not form the pattern [T, T].
    """
    if log_gate is not None:
        check_gate(key_mask, spec)
    order = _masks.order_of(spec, window)
    divided = isinstance(key_mask, DividedTokens)
    if spec.attention == "softmax" and not (divided or is_blockwise(len(q), spec.streaming)):
        return full_softmax(q, k, key_mask, order)(v, key_mask)
    if spec.attention == "linear" and not spec.causal:
        return linear(q, k, v, key_mask)
    if spec.attention == "linear":
        mixed = linear_causal(q, k, v, key_mask, order, log_gate)
        return mixed + diagonal_logits(q, k, key_mask, 0.0) * v if order.mask == "own" else mixed
    all_k, all_v = k, v
    k, v = (_masks.zero_masked(part, key_mask) for part in (k, v))
    if divided:
        mixed, log_total = ring_softmax(q, k, v, key_mask, order)
    else:
        mixed, log_total = blockwise_softmax(q, k, v, key_mask, order)
    if order.mask == "own":
        logits = diagonal_logits(q, all_k, key_mask, -jnp.inf)
        return mixed + jax.nn.sigmoid(logits - log_total[:, None]) * (all_v - mixed)
    return mixed


def linear(
    q: Float[Array, "T k"], k: Float[Array, "T k"], v: Float[Array, "T d"], key_mask: _masks.KeyMask
) -> Float[Array, "T d"]:
    """Linear attention to all visible tokens, q (k^T v)."""
    k, v = (_masks.zero_masked(part, key_mask) for part in (k, v))
    if k.shape[1] == v.shape[1] == 1:
        state = sum_of_rows(k * v)
    elif k.shape[1] <= v.shape[1]:  # the narrower factor is the one that is transposed
        state = matmul(k.T, v)
    else:
        state = matmul(v.T, k).T
    return matmul(q, total(state, key_mask))


def linear_causal(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    key_mask: _masks.KeyMask,
    order: _masks.Order,
    log_gate: Float[Array, " T"] | None,
) -> Float[Array, "T d"]:
    """Linear attention to earlier tokens, and to the token itself unless the mask is "exclusive".

    The first token attends to itself, if it is visible.
    """
    first = k[:1, :, None] * v[:1, None, :]
    k, v = (_masks.zero_masked(part, key_mask) for part in (k, v))
    products = k[:, :, None] * v[:, None, :]
    wide, shift = accumulation_dtype(k.dtype), order.mask == "exclusive"
    log_gate = None if log_gate is None else log_gate.astype(wide)
    if order.window is not None:
        states = windowed_sums(products.astype(wide), log_gate, key_mask, order).astype(k.dtype)
        return jnp.einsum("tk,tkd->td", q, states, precision=jax.lax.Precision.HIGHEST)
    fade: jax.Array | None = None
    if log_gate is None:
        sums = jnp.cumsum(products, axis=0, dtype=wide)
    else:  # the gates of hidden tokens are their own: no sum passes through them
        place = jnp.where(_masks.local_mask(key_mask), jnp.arange(len(q)), 0)
        key_gates = log_gate[jax.lax.cummax(place)]
        decay = jnp.exp(jnp.diff(key_gates, prepend=key_gates[:1]))
        sums = decayed_sums(products.astype(wide), decay)
        fade = jnp.exp(log_gate[shift:] - key_gates[: len(q) - shift])[:, None, None]
    if isinstance(key_mask, DividedTokens):
        last_sum, first_query = sums[-1], len(q) - key_mask.queries
        sums += devices.exclusive_cumsum(last_sum, key_mask.axes)[None]
        sums = sums.at[first_query - shift :].set(devices.psum(last_sum, key_mask.axes)[None])
    sums = sums[: len(q) - shift]
    sums = sums if fade is None else sums * fade
    if shift:
        sums = jnp.concatenate([first, sums.astype(k.dtype)])
    states = sums.astype(k.dtype)
    return jnp.einsum("tk,tkd->td", q, states, precision=jax.lax.Precision.HIGHEST)


def decayed_sums(terms: Float[Array, "T k d"], gates: Float[Array, " T"]) -> Float[Array, "T k d"]:
    """S_i = gate_i S_{i-1} + term_i. The gates are never inverted, so none can overflow."""

    def join(earlier: tuple, later: tuple) -> tuple:
        (a, s), (b, t) = earlier, later
        return a * b, b * s + t

    return jax.lax.associative_scan(join, (gates[:, None, None], terms))[1]


def windowed_sums(
    terms: Float[Array, "T k d"],
    log_gate: Float[Array, " T"] | None,
    key_mask: _masks.KeyMask,
    order: _masks.Order,
) -> Float[Array, "T k d"]:
    """The sum of the terms of the first token and of the last w visible ones, times their gates.

    The visible tokens are cut into blocks of w; the last w of them are the end of one block and the
    start of the next. So nothing is subtracted, and a term that left the window is in no sum.

    Source: van Herk, A fast algorithm for local minimum and maximum filters, 1992.
    """
    if isinstance(key_mask, DividedTokens):
        raise ValueError(
            "window needs linear attention to be on one device, got supports that a mesh divides"
        )
    assert order.window is not None
    tokens, w = len(terms), min(order.window, len(terms))
    _, last = _masks.key_positions(key_mask, order)  # 0 for the first token
    key_mask = jnp.asarray(key_mask).at[0].set(False)
    log_gate = jnp.zeros(tokens, terms.dtype) if log_gate is None else log_gate
    token = jnp.pad(jnp.argsort(~key_mask, stable=True), (0, -tokens % w))
    counts = jnp.arange(len(token)) < jnp.sum(key_mask)

    def blocks(values: jax.Array) -> jax.Array:
        return values.reshape(-1, w, *values.shape[1:])

    first, terms = terms[:1], jnp.where(blocks(counts)[..., None, None], terms[blocks(token)], 0)

    def fade(log: jax.Array) -> jax.Array:
        return jnp.exp(log)[..., None, None]

    # padding has the gates of the last token, so that no factor is above 1
    gates = blocks(log_gate[jnp.where(counts, token, token[jnp.sum(key_mask) - 1])])
    starts = jax.vmap(decayed_sums)(terms, jnp.exp(jnp.diff(gates, axis=1, prepend=gates[:, :1])))
    ends = jnp.cumsum((fade(gates[:, -1:] - gates) * terms)[:, ::-1], axis=1)[:, ::-1]
    # at place p of its block, a token reads what is after place p of the block before
    before = jnp.pad(ends[:-1, 1:], ((1, 0), (0, 1), (0, 0), (0, 0)))
    sums = starts + fade(gates - jnp.pad(gates[:-1, -1:], ((1, 0), (0, 0)))) * before
    sums = jnp.pad(sums.reshape(-1, *terms.shape[2:]), ((1, 0), (0, 0), (0, 0)))
    sums = sums[jnp.maximum(last, 0)]
    last_gates = jnp.where(last < 1, log_gate, gates.reshape(-1)[last - 1])
    return fade(log_gate - last_gates) * sums + fade(log_gate - log_gate[0]) * first


def check_gate(key_mask: _masks.KeyMask, spec: Spec) -> None:
    if spec.attention != "linear" or not spec.causal or isinstance(key_mask, DividedTokens):
        raise ValueError(
            "log_gate needs causal linear attention on one device, got "
            f"attention={spec.attention!r}, causal={spec.causal}"
        )


def total(part: jax.Array, key_mask: _masks.KeyMask) -> jax.Array:
    """The sum over all tokens, of which this device may hold a part."""
    return devices.psum(part, key_mask.axes) if isinstance(key_mask, DividedTokens) else part


def pattern(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    key_mask: _masks.KeyMask,
    spec: Spec,
    log_gate: Float[Array, " T"] | None = None,
    window: int | None = None,
) -> Float[Array, "T T"]:
    """The weight of every key for every query: <q_i, k_j> or its softmax over the visible keys."""
    order = _masks.order_of(spec, window)
    if spec.attention == "linear":
        weights, mask = matmul(q, k.T), _masks.partial_mask(key_mask, len(k))
        if log_gate is not None:
            check_gate(key_mask, spec)
            gaps = log_gate[:, None] - log_gate[None, :]
            weights *= jnp.exp(_masks.apply_mask(gaps, mask, order, 0.0))
        weights = _masks.apply_mask(weights, mask, order, 0.0)
        diagonal = diagonal_logits(q, k, key_mask, 0.0) if order.mask == "own" else None
    else:
        weights, totals, _, diagonal = full_softmax(q, k, key_mask, order)
        weights = jnp.pad(weights / totals, ((0, 0), (0, len(k) - weights.shape[1])))
        diagonal = None if diagonal is None else diagonal / totals
    return weights if diagonal is None else weights + jnp.diag(diagonal[:, 0])

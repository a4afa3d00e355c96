"""Which tokens attention may read as keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .._core import checks
from ..residual._tokens import DividedTokens, positions
from ._parts import Spec

KeyMask = Bool[Array, " T"] | Bool[np.ndarray, " T"] | DividedTokens
"""The tokens that can be read as keys. A NumPy array is a constant of the traced program.
`DividedTokens` are those of one device; other devices hold more."""


class Order(NamedTuple):
    """To which earlier tokens a token attends: the causal mask of `Spec.order`, and a window.

    With a window, it attends to the first token and to the last `window` visible ones of the mask.
    """

    mask: str = ""
    window: int | None = None


def order_of(spec: Spec, window: int | None) -> Order:
    if window is not None:
        checks.count("window", window)
        if not spec.causal:
            raise ValueError("causal must be True for heads with a window, got False")
    return Order(spec.order, window)


def key_positions(key_mask: KeyMask, order: Order) -> tuple[Any, Any]:
    """The position of each token [T], and that of the last key to which it attends [T].

    A position is the number of visible tokens before a token. The first token counts, also if it is
    masked.
    """
    if not isinstance(key_mask, DividedTokens):
        key_mask = key_mask | (np.arange(len(key_mask)) == 0)
    position, mask = positions(key_mask), local_mask(key_mask)
    return position, position - (1 if order.mask == "exclusive" else (~mask).astype(position.dtype))


def attends_to(
    key_mask: Bool[Array, " K"], position: Int[Array, " K"], last: Int[Array, " Q"], order: Order
) -> Bool[Array, "K Q"] | Bool[Array, "K 1"]:
    """To which keys the queries attend (for `position` and `last` see `key_positions`)."""
    key_mask, position = key_mask[:, None], position[:, None]
    if not order.mask:
        return key_mask
    earlier = position <= last[None, :]
    if order.window is not None:
        earlier &= last[None, :] - position < order.window
    return key_mask & (earlier | (position == 0))


def apply_mask(
    logits: jax.Array, key_mask: jax.Array | np.ndarray | None, order: Order, fill: float
) -> jax.Array:
    """Set the entries [T, K] of the keys to which a query does not attend to `fill`."""
    tokens, keys = logits.shape
    if key_mask is not None:
        logits = jnp.where(key_mask[None], logits, fill)
    if order.mask:
        last = -1 if order.mask == "exclusive" else 0
        earlier = jnp.tri(tokens, keys, k=last, dtype=bool)
        if order.window is not None:
            counts = jnp.cumsum(jnp.ones(keys, bool) if key_mask is None else key_mask)
            last_counts = counts[jnp.clip(jnp.arange(tokens) + last, 0, keys - 1)]
            earlier &= last_counts[:, None] - counts[None] < order.window
        logits = jnp.where(earlier.at[:, 0].set(True), logits, fill)
    return logits


def partial_mask(key_mask: KeyMask, keys: int) -> jax.Array | np.ndarray | None:
    """Which of the first tokens can be read as keys [K]; None if it is known that all can."""
    mask = local_mask(key_mask)[:keys]
    return None if isinstance(mask, np.ndarray) and mask.all() else mask


def key_rows(values: jax.Array, key_mask: KeyMask) -> jax.Array:
    """The tokens up to the last one that can be a key, with zeros at masked tokens."""
    if not isinstance(key_mask, np.ndarray):
        return zero_masked(values, key_mask)
    keys = int(np.max(np.flatnonzero(key_mask))) + 1
    return values[:keys] if key_mask[:keys].all() else zero_masked(values, key_mask)[:keys]


def local_mask(key_mask: KeyMask) -> jax.Array | np.ndarray:
    return key_mask.key_mask if isinstance(key_mask, DividedTokens) else key_mask


def zero_masked(values: jax.Array, key_mask: KeyMask) -> jax.Array:
    """Set masked tokens to zero, so that a NaN at a masked token does not spread."""
    return jnp.where(local_mask(key_mask).reshape(-1, *[1] * (values.ndim - 1)), values, 0)

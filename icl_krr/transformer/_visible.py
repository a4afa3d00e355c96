"""Which tokens attention may read as keys."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .._core import checks
from ..residual._tokens import DividedTokens, positions
from ._spec import Spec

Visible = Bool[Array, " T"] | Bool[np.ndarray, " T"] | DividedTokens
"""The tokens that can be read as keys. A NumPy array is a constant of the traced program.
`DividedTokens` are those of one device; other devices hold more."""


class Order(NamedTuple):
    """Which earlier tokens a token reads: the causal mask of `Spec.order`, and a window.

    With a window, it reads the first token and the last `window` visible ones of the mask.
    """

    mask: str = ""
    window: int | None = None


def order_of(spec: Spec, window: int | None) -> Order:
    if window is not None:
        checks.count("window", window)
        if not spec.causal:
            raise ValueError("causal must be True for heads with a window, got False")
    return Order(spec.order, window)


def numbered(visible: Visible, order: Order) -> tuple[Int[Array, " T"], Int[Array, " T"]]:
    """The number of visible tokens before each token, and that of the last key that it reads.

    The first token counts, also if it is hidden.
    """
    if not isinstance(visible, DividedTokens):
        visible = jnp.asarray(visible).at[0].set(True)
    number, seen = positions(visible), mask_of(visible)
    return number, number - (1 if order.mask == "exclusive" else (~seen).astype(number.dtype))


def reads(
    visible: Bool[Array, " K"], number: Int[Array, " K"], last: Int[Array, " Q"], order: Order
) -> Bool[Array, "K Q"] | Bool[Array, "K 1"]:
    """Which keys the queries read, all of them `numbered`."""
    visible, number = visible[:, None], number[:, None]
    if not order.mask:
        return visible
    earlier = number <= last[None, :]
    if order.window is not None:
        earlier &= last[None, :] - number < order.window
    return visible & (earlier | (number == 0))


def hide(
    pairs: jax.Array, seen: jax.Array | np.ndarray | None, order: Order, fill: float
) -> jax.Array:
    """Set the entries [T, K] of the keys that a query does not read to `fill`."""
    tokens, keys = pairs.shape
    if seen is not None:
        pairs = jnp.where(seen[None], pairs, fill)
    if order.mask:
        last = -1 if order.mask == "exclusive" else 0
        earlier = jnp.tri(tokens, keys, k=last, dtype=bool)
        if order.window is not None:
            so_far = jnp.cumsum(jnp.ones(keys, bool) if seen is None else seen)
            of_query = so_far[jnp.clip(jnp.arange(tokens) + last, 0, keys - 1)]
            earlier &= of_query[:, None] - so_far[None] < order.window
        pairs = jnp.where(earlier.at[:, 0].set(True), pairs, fill)
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
    return visible.key_mask if isinstance(visible, DividedTokens) else visible


def zero_hidden(values: jax.Array, visible: Visible) -> jax.Array:
    """Set hidden tokens to zero, so that a NaN at a hidden token does not spread."""
    visible = mask_of(visible)
    return jnp.where(visible.reshape(-1, *[1] * (values.ndim - 1)), values, 0)

"""Which tokens attention may read as keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ..residual.tokens import DividedTokens

Visible = Bool[Array, " T"] | Bool[np.ndarray, " T"] | DividedTokens
"""The tokens that can be read as keys. A NumPy array is a constant of the traced program.
`DividedTokens` are those of one device; other devices hold more."""


def hide(
    pairs: jax.Array, seen: jax.Array | np.ndarray | None, order: str, fill: float
) -> jax.Array:
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

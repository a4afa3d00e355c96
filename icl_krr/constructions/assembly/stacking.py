"""Stack the blocks of all steps, and share what is equal in all of them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ...transformer.weights import Block


def stack(
    record: Callable[..., tuple[Block, ...]], coefficients: tuple[jax.Array, ...]
) -> tuple[Block, ...]:
    """Return blocks whose leaves are [steps, ...] if they depend on coefficients, else [1, ...]."""
    if not coefficients:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], record())
    shared, structure = [], None

    def vary(coefficients: tuple[jax.Array, ...]) -> list[jax.Array | None]:
        nonlocal shared, structure
        leaves, structure = jax.tree.flatten(record(*coefficients))
        own = [isinstance(leaf, type(coefficients[0])) for leaf in leaves]
        shared = [None if o else leaf for leaf, o in zip(leaves, own, strict=True)]
        return [leaf if o else None for leaf, o in zip(leaves, own, strict=True)]

    varying = jax.vmap(vary)(coefficients)
    assert structure is not None
    pairs = zip(varying, shared, strict=True)
    return structure.unflatten(
        [own if common is None else jnp.asarray(common)[None] for own, common in pairs]
    )

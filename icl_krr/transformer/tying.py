"""Weights that the steps share: leaves [1, ...] among those of [steps, ...]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .weights import Block, Heads, Transformer


def untie(model: Transformer) -> Transformer:
    """The same model with weights of its own for every step: each leaf of `steps` [steps, ...].

    Constructions share what is the same in every step, so that a gradient moves all steps
    alike and patterns that no step changes are computed once. Untied, each step can be
    fine-tuned by itself.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=4)
    >>> query = lambda model: model.weights.steps[0].attention[0].query.blocks["x"]
    >>> query(model).shape, query(untie(model)).shape
    ((1,), (4,))
    """

    def spread(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf, (model.steps, *leaf.shape[1:]))

    steps = jax.tree.map(spread, model.weights.steps)
    return model.replace(weights=model.weights.replace(steps=steps))  # pyright: ignore[reportAttributeAccessIssue]


def split_steps(model: Transformer) -> tuple[list[Any], Callable[[list[Any]], tuple[Block, ...]]]:
    """The leaves that differ from step to step, to be scanned, and how they become blocks."""
    leaves, structure = jax.tree.flatten(model.weights.steps)
    for leaf in leaves:
        if leaf.shape[0] not in (1, model.steps):
            raise ValueError(
                f"steps must be {leaf.shape[0]}, as many as the weights have, got {model.steps}"
            )
    tied = [leaf[0] if leaf.shape[0] == 1 else None for leaf in leaves]
    scanned = [leaf if shared is None else None for leaf, shared in zip(leaves, tied, strict=True)]

    def blocks(now: list[Any]) -> tuple[Block, ...]:
        pairs = zip(now, tied, strict=True)
        return structure.unflatten([own if shared is None else shared for own, shared in pairs])

    return scanned, blocks


def constant_heads(model: Transformer) -> list[tuple[int, int]]:
    """(block of the step, its group of heads): those whose pattern is the same in every step.

    Queries and keys read slots that no step writes, by weights that the steps share.
    """
    blocks = model.weights.steps
    written = {write.to for b in blocks for heads in b.attention for write in heads.writes}
    written |= {unit.to for b in blocks for unit in b.mlp}

    def constant(block: Block, heads: Heads) -> bool:
        read = heads.query.slots | heads.key.slots
        weights = jax.tree.leaves((heads.query, heads.key, block.attention_norm))
        return not read & written and all(leaf.shape[0] == 1 for leaf in weights)

    return [
        (b, j)
        for b, block in enumerate(blocks)
        for j, heads in enumerate(block.attention)
        if constant(block, heads)
    ]

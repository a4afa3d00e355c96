"""Tokens: one aggregator, n supports, q queries, in that order."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ..tasks import Task
from .layout import Layout
from .reads import Read

Stream = dict[str, jax.Array]
"""{slot: [tokens, width]}; a model whose slots were merged has the one slot "stream"."""


def fields(task: Task) -> Stream:
    """What a task says of each token, [1 + n + q, width] each, in the task's dtype.

    `x` [tokens, p] and `y` [tokens, r] (zero at the aggregator; y is zero at queries, whose
    outputs nobody knows), the flags `aggregator`, `support`, `query` and the constant `one`
    [tokens, 1]. A masked support is zero but for `one`.
    """
    n, q, dtype = task.num_supports, task.num_queries, task.x.dtype
    keep = jnp.ones(n, bool) if task.mask is None else task.mask
    zero = jnp.zeros((1, 1), dtype)

    def tokens(aggregator, supports, queries):
        supports = jnp.where(keep[:, None], supports, 0)
        width = supports.shape[1]
        ends = (jnp.broadcast_to(aggregator, (1, width)), jnp.broadcast_to(queries, (q, width)))
        return jnp.concatenate([ends[0], supports, ends[1]])

    return {
        "x": tokens(zero, task.x, task.x_query),
        "y": tokens(zero, task.y.reshape(n, -1), zero),
        "aggregator": tokens(zero + 1, jnp.zeros((n, 1), dtype), zero),
        "support": tokens(zero, jnp.ones((n, 1), dtype), zero),
        "query": tokens(zero, jnp.zeros((n, 1), dtype), zero + 1),
        "one": jnp.ones((1 + n + q, 1), dtype),
    }


def embed(embedding: Mapping[str, Read], task: Task) -> Stream:
    """Every slot as its read of the tokens' fields."""
    tokens = fields(task)
    return {slot: read(tokens) for slot, read in embedding.items()}


def visible(task: Task) -> jax.Array:
    """Who may be read as a key, [tokens] bool: the aggregator and the supports, no query."""
    keep = jnp.ones(task.num_supports, bool) if task.mask is None else task.mask
    return jnp.concatenate([jnp.ones(1, bool), keep, jnp.zeros(task.num_queries, bool)])


def rows(at: tuple[str, ...], task: Task) -> slice:
    """The tokens of a role; all of them for a slot that lives at several."""
    n = task.num_supports
    only: dict[tuple[str, ...], slice] = {
        ("aggregator",): slice(0, 1),
        ("support",): slice(1, 1 + n),
        ("query",): slice(1 + n, None),
    }
    return only.get(at, slice(None))


def channels(stream: Stream, layout: Layout, slot: str) -> jax.Array:
    """A slot of the stream, be it stored on its own or merged with the others."""
    merged = set(stream) == {"stream"}
    return stream["stream"][:, layout.channels(slot)] if merged else stream[slot]

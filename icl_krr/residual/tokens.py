"""Tokens: one aggregator, the supports, q queries, in that order.

A support is one token of x and y ("pairs"), or one of x and, after it, one of y ("interleaved").
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ..tasks import Task
from .layout import Layout
from .reads import Read

Stream = dict[str, jax.Array]
"""{slot: [tokens, width]}; a model whose slots were merged has the one slot "stream"."""

TOKENS = ("pairs", "interleaved")


def fields(task: Task, tokens: str = "pairs") -> Stream:
    """What a task says of each token, in the task's dtype: [T, width] each.

    `x` [T, p] and `y` [T, r] (zero at the aggregator; y is zero at queries, whose outputs nobody
    knows), the flags `aggregator`, `support`, `query` and the constant `one` [T, 1]. A masked
    support is zero but for `one`. Interleaved, the token of a support's x is flagged as a query,
    which it is for all that came before, and that of its y as a support.

    >>> from icl_krr import Task
    >>> task = Task(x=jnp.ones((2, 1)), y=jnp.array([3.0, 4.0]), x_query=jnp.ones((1, 1)))
    >>> fields(task)["support"].ravel().tolist()
    [0.0, 1.0, 1.0, 0.0]
    >>> fields(task, "interleaved")["y"].ravel().tolist()
    [0.0, 0.0, 3.0, 0.0, 4.0, 0.0]
    """
    n, q, dtype = task.num_supports, task.num_queries, task.x.dtype
    keep = jnp.ones(n, bool) if task.mask is None else task.mask
    zero = jnp.zeros((1, 1), dtype)

    def lay(aggregator, inputs, outputs, queries):
        """`inputs` and `outputs` are what the tokens of x and of y hold; pairs hold the sum."""
        parts = [jnp.where(keep[:, None], part, 0) for part in (inputs, outputs)]
        width = parts[0].shape[1]
        if tokens == "interleaved":
            supports = jnp.stack(parts, axis=1).reshape(2 * n, width)
        else:
            supports = sum(parts[1:], parts[0])
        ends = (jnp.broadcast_to(aggregator, (1, width)), jnp.broadcast_to(queries, (q, width)))
        return jnp.concatenate([ends[0], supports, ends[1]])

    y = task.y.reshape(n, -1)
    none, each = jnp.zeros((n, 1), dtype), jnp.ones((n, 1), dtype)
    asked = each if tokens == "interleaved" else none
    return {
        "x": lay(zero, task.x, jnp.zeros_like(task.x), task.x_query),
        "y": lay(zero, jnp.zeros_like(y), y, zero),
        "aggregator": lay(zero + 1, none, none, zero),
        "support": lay(zero, none, each, zero),
        "query": lay(zero, asked, none, zero + 1),
        "one": jnp.ones((num_tokens(task, tokens), 1), dtype),
    }


def num_tokens(task: Task, tokens: str = "pairs") -> int:
    """$T = 1 + n + q$, or $1 + 2n + q$ for tokens that are "interleaved".

    >>> from icl_krr import Task
    >>> num_tokens(Task(x=jnp.ones((5, 1)), y=jnp.ones(5), x_query=jnp.ones((2, 1))))
    8
    """
    per_support = 2 if tokens == "interleaved" else 1
    return 1 + per_support * task.num_supports + task.num_queries


def embed(embedding: Mapping[str, Read], task: Task, tokens: str = "pairs") -> Stream:
    """Every slot as its read of the tokens' `fields`.

    Raises ValueError for a read of what is no field.

    >>> from icl_krr import Task
    >>> task = Task(x=jnp.ones((2, 1)), y=jnp.array([3.0, 4.0]), x_query=jnp.ones((1, 1)))
    >>> embed({"r": Read({"y": jnp.ones(())}, 1)}, task)["r"].ravel().tolist()
    [0.0, 3.0, 4.0, 0.0]
    """
    told = fields(task, tokens)
    return {slot: read(told) for slot, read in embedding.items()}


def visible(task: Task, tokens: str = "pairs") -> jax.Array:
    """Who may be read as a key, [T] bool: the aggregator and the supports, no query.

    >>> from icl_krr import Task
    >>> visible(Task(x=jnp.ones((1, 1)), y=jnp.ones(1), x_query=jnp.ones((1, 1)))).tolist()
    [True, True, False]
    """
    keep = jnp.ones(task.num_supports, bool) if task.mask is None else task.mask
    keep = jnp.repeat(keep, 2) if tokens == "interleaved" else keep
    return jnp.concatenate([jnp.ones(1, bool), keep, jnp.zeros(task.num_queries, bool)])


def token_positions(visible: jax.Array) -> jax.Array:
    """The visible tokens before each, [T]: all queries stand where the next support would."""
    so_far = jnp.cumsum(visible)
    return so_far - visible.astype(so_far.dtype)


def tokens_of_role(at: tuple[str, ...], task: Task, tokens: str = "pairs") -> slice:
    """The tokens of a role; all of them for a slot that lives at several."""
    end, step = num_tokens(task, tokens) - task.num_queries, 1 + (tokens == "interleaved")
    only: dict[tuple[str, ...], slice] = {
        ("aggregator",): slice(0, 1),
        ("support",): slice(step, end, step),
        ("query",): slice(end, None),
    }
    return only.get(at, slice(None))


def slot_of_stream(stream: Stream, layout: Layout, slot: str) -> jax.Array:
    """A slot of the stream, be it stored on its own or merged with the others."""
    merged = set(stream) == {"stream"}
    return stream["stream"][:, layout.channels(slot)] if merged else stream[slot]

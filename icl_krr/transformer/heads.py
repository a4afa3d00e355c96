"""Groups of heads: from the stream to queries, keys and values, and back to the slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..numerics import matmul
from ..residual import Stream
from .attention import UndividedSoftmax, attend, pattern, undivided_softmax, zero_hidden
from .hook_points import HookPoints
from .mlp import project
from .stream import normalise, sum_of_slots
from .tiled_attention import uses_tiles
from .tying import constant_heads
from .weights import Heads, Spec, Transformer


def written_by_heads(
    heads: Heads,
    stream: Stream,
    visible: Bool[Array, " T"],
    spec: Spec,
    hook_points: HookPoints,
    j: int,
    known: UndividedSoftmax | None,
) -> Stream:
    """The values that one group of heads writes: {slot: [T, width]}."""
    values = [split(write.value(stream), heads.heads) for write in heads.writes]
    v = jnp.concatenate(values, axis=-1)
    point = f"heads.{j}.pattern"
    if hook_points.wants(point):
        shown = hook_points(point, patterns(heads, stream, visible, spec))
        mixed = over_heads(matmul)(shown, zero_hidden(v, visible))
    else:
        hook_points.seen.add(point)
        if known is not None:
            mixed = over_heads(UndividedSoftmax.__call__)(known, zero_hidden(v, visible))
        elif is_mean(heads, spec):
            mixed = mean(v, visible)
        else:
            mixed = attend_each(heads, stream, v, visible, spec)
    mixed = hook_points(f"heads.{j}.mixed", mixed)
    written: Stream = {}
    start = 0
    for write, value in zip(heads.writes, values, strict=True):
        part = mixed[:, :, start : start + value.shape[-1]].reshape(len(mixed), -1)
        written = sum_of_slots(written, {write.to: project(part, write.out)})
        start += value.shape[-1]
    return written


def constant_patterns(
    model: Transformer, stream: Stream, visible: Bool[Array, " T"]
) -> list[dict[int, UndividedSoftmax]]:
    """Compute the attention patterns that are the same in all steps.

    The function returns one dict {group of heads: pattern} for each block of a step. The patterns
    have a leading axis of heads. The dicts are empty if the patterns are too large to store.
    """
    known: list[dict[int, UndividedSoftmax]] = [{} for _ in model.weights.steps]
    if model.spec.attention == "linear" or uses_tiles(len(visible), model.spec.streaming):
        return known

    def of_head(q: jax.Array, k: jax.Array) -> UndividedSoftmax:
        return undivided_softmax(q, zero_hidden(k, visible), visible, model.spec.causal)

    first = jax.tree.map(lambda leaf: leaf[0], model.weights.steps)
    for b, j in constant_heads(model):
        heads = first[b].attention[j]
        if not is_mean(heads, model.spec):
            inputs = normalise(first[b].attention_norm, stream)
            q, k = queries_and_keys(heads, inputs)
            known[b][j] = jax.vmap(of_head, in_axes=1)(q, k)
    return known


def over_heads(weigh: Callable[[Any, jax.Array], jax.Array]) -> Callable:
    """Apply patterns with a leading axis of heads to values [T, H, d]."""
    return jax.vmap(weigh, in_axes=(0, 1), out_axes=1)


def queries_and_keys(heads: Heads, stream: Stream) -> tuple[jax.Array, jax.Array]:
    return split(heads.query(stream), heads.heads), split(heads.key(stream), heads.heads)


def patterns(
    heads: Heads, stream: Stream, visible: Bool[Array, " T"], spec: Spec
) -> Float[Array, "H T T"]:
    q, k = queries_and_keys(heads, stream)
    return jax.vmap(lambda q, k: pattern(q, k, visible, spec), in_axes=1)(q, k)


def attend_each(
    heads: Heads, stream: Stream, v: Float[Array, "T H d"], visible: Bool[Array, " T"], spec: Spec
) -> Float[Array, "T H d"]:
    q, k = queries_and_keys(heads, stream)
    each = jax.vmap(lambda q, k, v: attend(q, k, v, visible, spec), in_axes=1, out_axes=1)
    return each(q, k, v)


def is_mean(heads: Heads, spec: Spec) -> bool:
    """Whether all logits are zero because queries or keys read no slot.

    Softmax then gives every visible token the same weight.
    """
    nothing = not (heads.query.blocks and heads.key.blocks)
    return nothing and spec.attention == "softmax" and not spec.causal


def mean(v: Float[Array, "T H d"], visible: Bool[Array, " T"]) -> Float[Array, "T H d"]:
    total = jnp.sum(zero_hidden(v, visible), axis=0)
    return jnp.broadcast_to(total / jnp.sum(visible, dtype=v.dtype), v.shape)


def split(channels: jax.Array, heads: int) -> jax.Array:
    """Reshape [T, heads * d] to [T, heads, d]."""
    return channels.reshape(len(channels), heads, -1)

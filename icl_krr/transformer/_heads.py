"""A group of attention heads: its patterns, what they mix, and what it writes to the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.messages import unknown_name
from .._core.numerics import matmul
from .._core.xla_workarounds import NARROW
from ..residual import Stream
from ..residual._reads import read_together
from ._attention import attend, pattern, total
from ._blockwise_softmax import is_blockwise
from ._full_softmax import FullSoftmax, full_softmax
from ._hook_points import HookPoints
from ._masks import KeyMask, key_rows, local_mask, order_of, zero_masked
from ._tying import constant_heads, is_mean
from ._weights import Block, Heads, Norm, Spec, Transformer


def project(hidden: jax.Array, out: jax.Array | None) -> jax.Array:
    return hidden if out is None else matmul(hidden, out)


def add_to_stream(stream: Stream, written: Stream) -> Stream:
    """Add what a sublayer writes; the stream must have all written slots."""
    for slot, part in written.items():
        if slot not in stream:
            raise ValueError(unknown_name("slot to write", slot, stream))
        if part.shape != stream[slot].shape:
            raise ValueError(
                f"values written to slot {slot} must have shape {list(stream[slot].shape)}, "
                f"got {list(part.shape)}"
            )
    return sum_of_slots(stream, written)


def sum_of_slots(stream: Stream, written: Stream) -> Stream:
    new = {slot: stream[slot] + part if slot in stream else part for slot, part in written.items()}
    return {**stream, **new}


def normalise(norms: dict[str, Norm], stream: Stream) -> Stream:
    """LayerNorm of the slots that have a norm; other slots are unchanged."""
    normed = {}
    for slot, norm in norms.items():
        h = stream[slot] - jnp.mean(stream[slot], axis=-1, keepdims=True)
        variance = jnp.mean(h * h, axis=-1, keepdims=True)
        normed[slot] = h * jax.lax.rsqrt(variance + 1e-5) * norm.scale[None] + norm.bias[None]
    return {**stream, **normed}


def run_heads(
    heads: Heads,
    stream: Stream,
    key_mask: KeyMask,
    spec: Spec,
    hook_points: HookPoints,
    j: int,
    constant: FullSoftmax | None,
) -> Stream:
    """The values that one group of heads writes: {slot: [T, width]}.

    `constant` is its pattern, if that was computed before the steps (`constant_patterns`).
    """
    point, uniform = f"heads.{j}.pattern", is_mean(heads, spec)
    hooked = hook_points.uses(point)
    reads = [*heads.reads] if hooked or (constant is None and not uniform) else []
    results = read_together([*reads, *(write.value for write in heads.writes)], stream)
    split = [split_heads(result, heads.heads) for result in results]
    queries_and_keys, values = split[: len(reads)], split[len(reads) :]
    hook_points.names.add(point)
    formed = None
    if hooked:
        formed = hook_points(point, patterns(queries_and_keys, key_mask, spec, heads.window))

    def mix(v: jax.Array) -> jax.Array:
        if formed is not None:
            return over_heads(partial(weigh, key_mask=key_mask, spec=spec))(formed, v)
        if constant is not None:
            return over_heads(partial(FullSoftmax.__call__, key_mask=key_mask))(constant, v)
        if uniform:
            return mean(v, key_mask)
        return attend_each(queries_and_keys, v, key_mask, spec, heads.window)

    # products with few values are faster one by one; sums of several values are one operation
    few = sum(value.shape[-1] for value in values) < NARROW and not uniform
    parts = values if few else [jnp.concatenate(values, axis=-1)]
    mixed = jnp.concatenate([mix(v) for v in parts], axis=-1)
    mixed = hook_points(f"heads.{j}.mixed", mixed)
    written: Stream = {}
    start = 0
    for write, value in zip(heads.writes, values, strict=True):
        target = stream.get(write.to)
        rows = None if target is None else len(target)
        part = mixed[:rows, :, start : start + value.shape[-1]]
        part = part.reshape(len(part), -1)
        written = sum_of_slots(written, {write.to: project(part, write.out)})
        start += value.shape[-1]
    return written


def constant_patterns(
    block: Block,
    position: int,
    pairs: list[tuple[int, int]],
    stream: Stream,
    key_mask: KeyMask,
    spec: Spec,
    shared: dict[str, FullSoftmax],
) -> dict[int, FullSoftmax]:
    """Compute the patterns of a block that are the same in every step: {group: pattern [H, T, K]}.

    `pairs` are those of `precomputed_heads`. `shared` has the patterns that earlier blocks have
    computed, by name, and gets those of this block.
    """
    inputs, results = normalise(block.attention_norm, stream), {}
    for j in [j for index, j in pairs if index == position]:
        heads = block.attention[j]
        if heads.pattern in shared:
            results[j] = shared[heads.pattern]
            continue
        q, k = (split_heads(read(inputs), heads.heads) for read in (heads.query, heads.key))
        order = order_of(spec, heads.window)
        results[j] = jax.vmap(partial(full_softmax, key_mask=key_mask, order=order), 1)(q, k)
        if heads.pattern is not None:
            shared[heads.pattern] = results[j]
    return results


def precomputed_heads(model: Transformer, tokens: int) -> list[tuple[int, int]]:
    """The pairs (block, group of heads) whose patterns are computed before the first step."""
    if model.spec.attention == "linear" or is_blockwise(tokens, model.spec.streaming):
        return []
    blocks = model.blocks
    pairs = constant_heads(model)
    return [(at, j) for at, j in pairs if not is_mean(blocks[at].attention[j], model.spec)]


def weigh(
    pattern: Float[Array, "T T"], v: Float[Array, "T d"], key_mask: KeyMask, spec: Spec
) -> Float[Array, "T d"]:
    """Apply a pattern to values; of hidden tokens, only their own value counts, if any."""
    mixed = matmul(pattern, zero_masked(v, key_mask))
    if spec.order != "own":
        return mixed
    return mixed + jnp.where(local_mask(key_mask)[:, None], 0, jnp.diag(pattern)[:, None] * v)


def over_heads(weigh: Callable[[Any, jax.Array], jax.Array]) -> Callable:
    """Apply patterns with a leading axis of heads to values [T, H, d]."""
    return jax.vmap(weigh, in_axes=(0, 1), out_axes=1)


def patterns(
    reads: list[jax.Array], key_mask: KeyMask, spec: Spec, window: int | None
) -> Float[Array, "H T T"]:
    """The patterns of heads with queries and keys [T, H, k], and log gates [T, H, 1] if any."""

    def one_head(q: jax.Array, k: jax.Array, *gate: jax.Array) -> jax.Array:
        return pattern(q, k, key_mask, spec, *(g[:, 0] for g in gate), window=window)

    return jax.vmap(one_head, in_axes=1)(*reads)


def attend_each(
    reads: list, v: Float[Array, "T H d"], key_mask: KeyMask, spec: Spec, window: int | None
) -> Float[Array, "T H d"]:
    def one_head(v: jax.Array, q: jax.Array, k: jax.Array, *gate: jax.Array) -> jax.Array:
        return attend(q, k, v, key_mask, spec, *(g[:, 0] for g in gate), window=window)

    return jax.vmap(one_head, in_axes=1, out_axes=1)(v, *reads)


def mean(v: Float[Array, "T H d"], key_mask: KeyMask) -> Float[Array, "T H d"]:
    sums = total(jnp.sum(key_rows(v, key_mask), axis=0), key_mask)
    count = total(jnp.asarray(local_mask(key_mask).sum(), v.dtype), key_mask)
    return jnp.broadcast_to(sums / count, v.shape)


def split_heads(channels: jax.Array, heads: int) -> jax.Array:
    """Reshape [T, heads * d] to [T, heads, d]."""
    return channels.reshape(len(channels), heads, -1)

"""What sublayers do: normalise what they read, compute hidden units, and add to the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.messages import unknown_name
from .._core.numerics import matmul, reciprocal
from .._core.xla_workarounds import NARROW
from ..residual import Stream
from ..residual._reads import read_together
from ._attention import attend, pattern, total
from ._hook_points import HookPoints
from ._tiled_attention import uses_tiles
from ._tying import constant_heads, is_mean
from ._undivided_softmax import UndividedSoftmax, undivided_softmax
from ._visible import Visible, mask_of, of_keys, order_of, zero_hidden
from ._weights import Block, Heads, Norm, Spec, Transformer, Unit

ACTIVATIONS = {
    "identity": lambda x: x,
    "reciprocal": reciprocal,
    "inverse": lambda x: 1 / x,
    "exp": jnp.exp,
    "log": jnp.log,
    "cos": jnp.cos,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "normal_cdf": jax.scipy.special.ndtr,
}


def activate(unit: Unit, stream: Stream) -> jax.Array:
    """The hidden units [T, hidden]; `project` multiplies them by the output matrix."""
    if unit.gate is None:
        assert unit.up is not None
        return unit.up(stream)
    hidden = ACTIVATIONS[unit.activation](unit.gate(stream))
    return hidden if unit.up is None else unit.up(stream) * hidden


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
    added = {
        slot: stream[slot] + part if slot in stream else part for slot, part in written.items()
    }
    return {**stream, **added}


def normalise(norms: dict[str, Norm], stream: Stream) -> Stream:
    """LayerNorm of the slots that have a norm; other slots are unchanged."""
    normed = {}
    for slot, norm in norms.items():
        h = stream[slot] - jnp.mean(stream[slot], axis=-1, keepdims=True)
        variance = jnp.mean(h * h, axis=-1, keepdims=True)
        normed[slot] = h * jax.lax.rsqrt(variance + 1e-5) * norm.scale[None] + norm.bias[None]
    return {**stream, **normed}


def written_by_heads(
    heads: Heads,
    stream: Stream,
    visible: Visible,
    spec: Spec,
    hook_points: HookPoints,
    j: int,
    known: UndividedSoftmax | None,
) -> Stream:
    """The values that one group of heads writes: {slot: [T, width]}."""
    point = f"heads.{j}.pattern"
    shown = hook_points.wants(point)
    formed = shown or (known is None and not is_mean(heads, spec))
    reads = [*heads.reads] if formed else []
    results = read_together([*reads, *(write.value for write in heads.writes)], stream)
    each = [split(result, heads.heads) for result in results]
    formed_by, values = each[: len(reads)], each[len(reads) :]
    hook_points.seen.add(point)
    weights = (
        hook_points(point, patterns(formed_by, visible, spec, heads.window)) if shown else None
    )

    def mix(v: jax.Array) -> jax.Array:
        if weights is not None:
            return over_heads(partial(weigh, visible=visible, spec=spec))(weights, v)
        if known is not None:
            return over_heads(partial(UndividedSoftmax.__call__, visible=visible))(known, v)
        if is_mean(heads, spec):
            return mean(v, visible)
        return attend_each(formed_by, v, visible, spec, heads.window)

    # products with few values are faster one by one; sums of several values are one operation
    few = sum(value.shape[-1] for value in values) < NARROW and not is_mean(heads, spec)
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
    groups: list[int],
    stream: Stream,
    visible: Visible,
    spec: Spec,
    shared: dict[str, UndividedSoftmax],
) -> dict[int, UndividedSoftmax]:
    """The patterns of these groups of heads of a block, {group: [H, T, K]}.

    `shared` has the patterns that earlier blocks have computed, by name, and gets those of this
    block.
    """

    def of_group(heads: Heads) -> UndividedSoftmax:
        if heads.pattern in shared:
            return shared[heads.pattern]
        q, k = (split(read(inputs), heads.heads) for read in (heads.query, heads.key))
        of_head = partial(undivided_softmax, visible=visible, order=order_of(spec, heads.window))
        made = jax.vmap(of_head, in_axes=1)(q, k)
        if heads.pattern is not None:
            shared[heads.pattern] = made
        return made

    inputs = normalise(block.attention_norm, stream)
    return {j: of_group(block.attention[j]) for j in groups}


def known_heads(model: Transformer, tokens: int) -> list[tuple[int, int]]:
    """The pairs (block, group of heads) whose patterns are computed before the first step."""
    if model.spec.attention == "linear" or uses_tiles(tokens, model.spec.streaming):
        return []
    blocks = model.blocks
    pairs = constant_heads(model)
    return [(at, j) for at, j in pairs if not is_mean(blocks[at].attention[j], model.spec)]


def weigh(
    pattern: Float[Array, "T T"], v: Float[Array, "T d"], visible: Visible, spec: Spec
) -> Float[Array, "T d"]:
    """Apply a pattern to values; of hidden tokens, only their own value counts, if any."""
    mixed = matmul(pattern, zero_hidden(v, visible))
    if spec.order != "own":
        return mixed
    return mixed + jnp.where(mask_of(visible)[:, None], 0, jnp.diag(pattern)[:, None] * v)


def over_heads(weigh: Callable[[Any, jax.Array], jax.Array]) -> Callable:
    """Apply patterns with a leading axis of heads to values [T, H, d]."""
    return jax.vmap(weigh, in_axes=(0, 1), out_axes=1)


def patterns(
    reads: list[jax.Array], visible: Visible, spec: Spec, window: int | None
) -> Float[Array, "H T T"]:
    """The patterns of heads with queries and keys [T, H, k], and log gates [T, H, 1] if any."""

    def of_head(q: jax.Array, k: jax.Array, *gate: jax.Array) -> jax.Array:
        return pattern(q, k, visible, spec, *(g[:, 0] for g in gate), window=window)

    return jax.vmap(of_head, in_axes=1)(*reads)


def attend_each(
    reads: list[jax.Array],
    v: Float[Array, "T H d"],
    visible: Visible,
    spec: Spec,
    window: int | None,
) -> Float[Array, "T H d"]:
    def of_head(v: jax.Array, q: jax.Array, k: jax.Array, *gate: jax.Array) -> jax.Array:
        return attend(q, k, v, visible, spec, *(g[:, 0] for g in gate), window=window)

    return jax.vmap(of_head, in_axes=1, out_axes=1)(v, *reads)


def mean(v: Float[Array, "T H d"], visible: Visible) -> Float[Array, "T H d"]:
    sums = total(jnp.sum(of_keys(v, visible), axis=0), visible)
    count = total(jnp.sum(mask_of(visible), dtype=v.dtype), visible)
    return jnp.broadcast_to(sums / count, v.shape)


def split(channels: jax.Array, heads: int) -> jax.Array:
    """Reshape [T, heads * d] to [T, heads, d]."""
    return channels.reshape(len(channels), heads, -1)

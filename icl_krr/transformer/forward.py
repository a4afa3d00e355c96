"""The forward pass: the only one, for constructed and trained weights alike, of one task."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..residual import Stream
from .attention import attend, hide, pattern
from .mlp import activate, project
from .taps import Hook, Placed, Taps
from .weights import Block, Heads, Norm, Spec, Transformer


class Pass(NamedTuple):
    """The final stream; what was observed, [steps + 1, ...]; every point of every block.

    `points` is a list over the blocks of prologue and step of {point: value}; those of the
    step have a leading axis of steps.
    """

    stream: Stream
    observed: Any
    points: list[dict[str, Any]]


def forward(
    model: Transformer,
    stream: Stream,
    visible: jax.Array,
    *,
    observe: Callable[[Stream], Any] = lambda stream: (),
    everything: bool = False,
    hooks: Mapping[str, Hook] | None = None,
) -> Pass:
    """Run an embedded task through the model's blocks; batch it by `jax.vmap`.

    `stream` is {slot: [T, width]}, `visible` [T] bool says who may be read as a key. `observe`
    is applied to the stream after the prologue and after every step, and only its values are
    stored; `everything` keeps each point of each block besides. `hooks` are {name: function
    (value, name) -> value}, see `taps` for the names. Depth is one `lax.scan`: compile time
    and, without gradients, memory do not grow with it.

    Raises ValueError for a hook at a point that the model does not have.
    """
    spec, prologue, steps = model.spec, model.weights.prologue, model.weights.steps
    first = len(prologue)
    placed = [place(name, hook, model) for name, hook in (hooks or {}).items()]

    def taps(block: int, step: Any) -> Taps:
        return Taps([hook for at, hook in placed if at == block], step, everything)

    points = []
    for i, block in enumerate(prologue):
        tap = taps(i, 0)
        stream = run_block(block, stream, visible, spec, tap)
        confirm(tap)
        points.append(tap.kept)

    def body(stream: Stream, scanned: Any) -> tuple[Stream, Any]:
        blocks, step = scanned
        kept = []
        for b, block in enumerate(blocks):
            tap = taps(first + b, step)
            stream = run_block(block, stream, visible, spec, tap)
            confirm(tap)
            kept.append(tap.kept)
        return stream, (observe(stream), kept)

    start = observe(stream)
    stream, (path, kept) = jax.lax.scan(body, stream, (steps, jnp.arange(model.steps)))
    observed = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, path)
    return Pass(stream, observed, points + kept)


def run_block(block: Block, stream: Stream, visible: jax.Array, spec: Spec, tap: Taps) -> Stream:
    """h += attention(h); h += mlp(h). Writes of one sublayer are summed, then added."""
    stream = tap("resid_pre", stream)
    inputs = normalise(block.attention_norm, stream)
    written: Stream = {}
    for j, heads in enumerate(block.attention):
        written = plus(
            written, tap(f"heads.{j}", read_tokens(heads, inputs, visible, spec, tap, j))
        )
    stream = add(stream, tap("attn", written))
    inputs = normalise(block.mlp_norm, stream)
    written = {}
    for j, unit in enumerate(block.mlp):
        written = plus(written, tap(f"units.{j}", {unit.to: activate(unit, inputs)}))
    stream = add(stream, tap("mlp", written))
    return tap("resid_post", stream)


def read_tokens(
    heads: Heads, stream: Stream, visible: jax.Array, spec: Spec, tap: Taps, j: int
) -> Stream:
    """What one group of heads writes: {slot: [T, width]}."""
    q, k = split(heads.query(stream), heads.heads), split(heads.key(stream), heads.heads)
    values = [split(write.value(stream), heads.heads) for write in heads.writes]
    v = jnp.concatenate(values, axis=-1)
    options = {"kind": spec.attention, "causal": spec.causal}
    if tap.wants(f"heads.{j}.pattern"):
        each = jax.vmap(lambda q, k: pattern(q, k, visible, **options), in_axes=1)(q, k)
        each = tap(f"heads.{j}.pattern", each)
        seen = hide(v, visible)
        mixed = jnp.einsum("hij,jhd->ihd", each, seen, precision=jax.lax.Precision.HIGHEST)
    else:
        tap.seen.add(f"heads.{j}.pattern")
        one = lambda q, k, v: attend(q, k, v, visible, **options)  # noqa: E731
        mixed = jax.vmap(one, in_axes=1, out_axes=1)(q, k, v)
    written: Stream = {}
    start = 0
    for write, value in zip(heads.writes, values, strict=True):
        part = mixed[:, :, start : start + value.shape[-1]].reshape(len(mixed), -1)
        written = plus(written, {write.to: project(part, write.out)})
        start += value.shape[-1]
    return written


def split(channels: jax.Array, heads: int) -> jax.Array:
    """[T, heads * d] as [T, heads, d]."""
    return channels.reshape(len(channels), heads, -1)


def add(stream: Stream, written: Stream) -> Stream:
    """Add what a sublayer writes to the slots that the stream has."""
    for slot, part in written.items():
        if slot not in stream:
            raise ValueError(f"slot must be one of {', '.join(stream)}; got {slot!r} to write")
        if part.shape != stream[slot].shape:
            raise ValueError(
                f"slot {slot} must be written {list(stream[slot].shape)}, got {list(part.shape)}"
            )
    return plus(stream, written)


def plus(stream: Stream, written: Stream) -> Stream:
    added = {
        slot: stream[slot] + part if slot in stream else part for slot, part in written.items()
    }
    return {**stream, **added}


def normalise(norms: dict[str, Norm], stream: Stream) -> Stream:
    """LayerNorm of the slots that have one; the others as they are."""
    normed = {}
    for slot, norm in norms.items():
        h = stream[slot] - jnp.mean(stream[slot], axis=-1, keepdims=True)
        variance = jnp.mean(h * h, axis=-1, keepdims=True)
        normed[slot] = h * jax.lax.rsqrt(variance + 1e-5) * norm.scale + norm.bias
    return {**stream, **normed}


def place(name: str, hook: Hook, model: Transformer) -> tuple[int, Placed]:
    """Which block of prologue or step a hook belongs to, its point, and at which step."""
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if not match or int(match[1]) >= model.depth:
        raise ValueError(
            f"hook must be at blocks.I.POINT with I < depth = {model.depth}, got {name!r}"
        )
    at, first = int(match[1]), len(model.weights.prologue)
    if at < first:
        return at, Placed(match[2], 0, name, hook)
    step, block = divmod(at - first, model.blocks_per_step)
    return first + block, Placed(match[2], step, name, hook)


def confirm(tap: Taps) -> None:
    for hook in tap.hooks:
        if hook.point not in tap.seen:
            raise ValueError(
                f"hook must be at a point of its block, got {hook.name!r}; "
                f"the points are {', '.join(sorted(tap.seen))}"
            )

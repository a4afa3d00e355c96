"""The forward pass of one task, for constructed and trained weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._core.messages import suggestion
from .._core.xla_workarounds import ordered_collectives
from ..residual import Stream
from ..residual._tokens import DividedTokens, without_aggregator
from ._hook_points import Hook, HookPoints, PlacedHook, Where
from ._sublayers import (
    activate,
    add_to_stream,
    constant_patterns,
    known_heads,
    normalise,
    project,
    sum_of_slots,
    written_by_heads,
)
from ._tying import carried_slots, erased_slots, erases, known_zeros, split_steps
from ._undivided_softmax import UndividedSoftmax
from ._visible import Visible
from ._weights import Block, Spec, Transformer, with_patterns


class Pass(NamedTuple):
    """The stream after the last block, the values of `observe` [steps + 1, ...], and `points`.

    These are one dict {point: value} for each block of the prologue, then one for each block of a
    step, whose values have the steps as first axis.
    """

    stream: Stream
    observed: Any
    points: list[dict[str, Any]]


def forward(
    model: Transformer,
    stream: Stream,
    visible: Visible,
    *,
    observe: Callable[[Stream], Any] = lambda stream: (),
    keep: bool | Collection[str] = (),
    hooks: Mapping[str, Hook] | None = None,
) -> Pass:
    """Run an embedded task through the blocks of a model.

    All steps are one `jax.lax.scan`, so the compile time does not grow with depth. The scan carries
    the slots that a step writes and does not erase. The memory does not grow with depth either,
    except that a gradient stores these slots for each step. Batch the function by `jax.vmap`.

    Args:
        stream: the embedded task, {slot: [T, width]} (see `icl_krr.residual.embed`; pass
            `model.spec.tokens` and `model.spec.centred`).
        visible: [T] bool, True for the tokens that can be read as keys (see
            `icl_krr.residual.key_mask`).
        observe: function of the stream, called after the prologue and after every step, whose
            values are stored.
        keep: names of points, such as "attn.alpha", whose values are stored in every block that has
            them, or True for all points.
        hooks: {name: function (value, where) -> value} (see `icl_krr.run_with_hooks`).

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> stream = ik.residual.embed(model.weights.embedding, task)
    >>> forward(model, stream, ik.residual.key_mask(task)).stream["prediction"][-1].tolist()
    [3.0]
    """
    spec, prologue = model.spec, model.weights.prologue
    first = len(prologue)
    if not spec.aggregator:
        visible = without_aggregator(visible)
    if hooks or keep:
        stream = jax.tree.map(jnp.asarray, stream)
    placed = [place_hook(name, hook, model) for name, hook in (hooks or {}).items()]
    seen: set[str] = set()

    def run(block: Block, at: int, step: Any, stream: Stream, known: Any, kept: list) -> Stream:
        own = [hook for position, hook in placed if position in (at, None)]
        hook_points = HookPoints(own, Where(at, step, at + step * model.blocks_per_step), keep)
        stream = run_block(block, stream, visible, spec, hook_points, known)
        for hook in hook_points.hooks:
            if hook.step is not None and hook.point not in hook_points.seen:
                raise ValueError(
                    f"hook must be at a point of its block, got {hook.name!r}; "
                    f"{listed(hook.point, hook_points.seen)}"
                )
        seen.update(hook_points.seen)
        kept.append(hook_points.kept)
        return stream

    in_parts = isinstance(visible, DividedTokens)
    pairs = [] if placed or keep is True or in_parts else known_heads(model, len(visible))
    shared: dict[str, UndividedSoftmax] = {}

    def patterns(at: int, block: Block, stream: Stream) -> dict[int, UndividedSoftmax]:
        groups = [j for position, j in pairs if position == at]
        return constant_patterns(block, groups, stream, visible, spec, shared)

    points: list[dict[str, Any]] = []
    for i, block in enumerate(with_patterns(prologue, model.weights.patterns)):
        stream = run(block, i, 0, stream, patterns(i, block, stream), points)

    scanned, blocks = split_steps(model)
    any_step = blocks([None if leaf is None else leaf[0] for leaf in scanned])
    known = [patterns(first + b, block, stream) for b, block in enumerate(any_step)]

    hooked = any(at is None or at >= first for at, _ in placed)
    # a hook may change any slot
    start, carried = stream, stream if hooked else carried_slots(model.weights.steps, stream)

    def body(carried: Stream, now: Any) -> tuple[Stream, Any]:
        own, step = now
        kept: list[dict[str, Any]] = []
        stream = start | carried
        for b, block in enumerate(blocks(own)):
            stream = run(block, first + b, step, stream, known[b], kept)
        return {slot: stream[slot] for slot in carried}, (observe(stream), kept)

    # recomputing a step for the gradient is faster than storing its values
    body = jax.checkpoint(body, prevent_cse=False)
    carried, (path, kept) = jax.lax.scan(body, carried, (scanned, jnp.arange(model.steps)))
    asked = [hook.point for at, hook in placed if at is None]
    for point in [*asked, *([] if isinstance(keep, bool) else keep)]:
        if point not in seen:
            raise ValueError(
                f"point must exist in some block, got {point!r}; {listed(point, seen)}"
            )
    observed = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), observe(start), path)
    return Pass(jax.tree.map(jnp.asarray, start | carried), observed, points + kept)


def run_block(
    block: Block,
    stream: Stream,
    visible: Visible,
    spec: Spec,
    hook_points: HookPoints,
    known: Mapping[int, UndividedSoftmax],
) -> Stream:
    """h += attention(h); h += mlp(h). The writes of a sublayer are summed before they are added."""
    in_rings = isinstance(visible, DividedTokens) and spec.attention == "softmax"
    stream = hook_points("resid_pre", ordered_collectives(stream) if in_rings else stream)
    inputs = normalise(block.attention_norm, stream)
    written: Stream = {}
    for j, heads in enumerate(block.attention):
        if in_rings:
            inputs, written = ordered_collectives((inputs, written))
        mixed = written_by_heads(heads, inputs, visible, spec, hook_points, j, known.get(j))
        written = sum_of_slots(written, hook_points(f"heads.{j}", mixed))
    stream = hook_points("resid_mid", add_to_stream(stream, hook_points("attn", written)))
    inputs = normalise(block.mlp_norm, stream)
    written, rows = {}, {slot: value for slot, value in inputs.items() if len(value) == 1}
    # h - h is zero: a constant, which costs nothing. Points that somebody looks at show the -h
    erased = set() if hook_points.used else erased_slots(block)
    stream = stream | {slot: known_zeros(stream[slot]) for slot in erased}
    for j, unit in enumerate(block.mlp):
        if unit.to in erased and erases(unit):
            continue
        hidden = activate(unit, rows if unit.to in rows else inputs)
        hidden = hook_points(f"units.{j}.hidden", hidden)
        made = hook_points(f"units.{j}", {unit.to: project(hidden, unit.out)})
        written = sum_of_slots(written, made)
    stream = add_to_stream(stream, hook_points("mlp", written))
    return hook_points("resid_post", stream)


def place_hook(name: str, hook: Hook, model: Transformer) -> tuple[int | None, PlacedHook]:
    """The index of the block of a hook (None: all blocks), and the hook with its point and step."""
    if name.startswith("blocks.*."):
        return None, PlacedHook(name.removeprefix("blocks.*."), None, name, hook)
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if not match or int(match[1]) >= model.depth:
        raise ValueError(
            f"hook must be at blocks.I.POINT with I < depth = {model.depth} or at blocks.*.POINT, "
            f"got {name!r}"
        )
    at, first = int(match[1]), len(model.weights.prologue)
    if at < first:
        return at, PlacedHook(match[2], 0, name, hook)
    step, block = divmod(at - first, model.blocks_per_step)
    return first + block, PlacedHook(match[2], step, name, hook)


def listed(asked: str, seen: Collection[str]) -> str:
    """The end of a sentence about a point that does not exist: the points without their parts."""
    parts = {point for point in seen if any(point.startswith(f"{whole}.") for whole in seen)}
    example = f", and their parts, such as {min(parts)}" if parts else ""
    return f"the points are {', '.join(sorted({*seen} - parts))}{example}{suggestion(asked, seen)}"

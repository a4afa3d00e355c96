"""The forward pass: the only one, for constructed and trained weights alike, of one task."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..residual import Stream
from .attention import UndividedSoftmax
from .heads import constant_patterns, written_by_heads
from .hook_points import Hook, HookPlace, HookPoints, PlacedHook
from .mlp import activate, project
from .stream import add_to_stream, normalise, sum_of_slots
from .tying import split_steps
from .weights import Block, Spec, Transformer


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
    keep: bool | Collection[str] = (),
    hooks: Mapping[str, Hook] | None = None,
) -> Pass:
    """Run an embedded task through the model's blocks; batch it by `jax.vmap`.

    `stream` is {slot: [T, width]}, `visible` [T] bool says who may be read as a key. `observe`
    is applied to the stream after the prologue and after every step, and only its values are
    stored; `keep` names points whose values are kept in every block besides, or is True for all.
    `hooks` are {name: function (value, name) -> value}, see `hook_points` for the names. Depth is
    one `lax.scan`: compile time does not grow with it, nor memory, but for one stream a step where
    a gradient is taken.

    Raises ValueError for a hook at a point that the model does not have, or one to keep.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> stream = ik.residual.embed(model.weights.embedding, task)
    >>> forward(model, stream, ik.residual.visible(task)).stream["prediction"][-1].tolist()
    [3.0]
    """
    spec, prologue = model.spec, model.weights.prologue
    first = len(prologue)
    placed = [place_hook(name, hook, model) for name, hook in (hooks or {}).items()]
    seen: set[str] = set()

    def points_of(block: int, step: Any) -> HookPoints:
        return HookPoints(
            [hook for at, hook in placed if at in (block, None)], HookPlace(block, step), keep
        )

    points = []
    for i, block in enumerate(prologue):
        hook_points = points_of(i, 0)
        stream = run_block(block, stream, visible, spec, hook_points, {})
        check_hooked_points(hook_points)
        seen |= hook_points.seen
        points.append(hook_points.kept)

    scanned, blocks = split_steps(model)
    touched = keep is True or any(at is None or at >= first for at, _ in placed)
    known = [] if touched else constant_patterns(model, stream, visible)

    def body(stream: Stream, now: Any) -> tuple[Stream, Any]:
        own, step = now
        kept = []
        for b, block in enumerate(blocks(own)):
            hook_points = points_of(first + b, step)
            stream = run_block(block, stream, visible, spec, hook_points, known[b] if known else {})
            check_hooked_points(hook_points)
            seen.update(hook_points.seen)
            kept.append(hook_points.kept)
        return stream, (observe(stream), kept)

    start = observe(stream)
    # what a step computed is made again for its gradient: that is faster than to store it
    body = jax.checkpoint(body, prevent_cse=False)
    stream, (path, kept) = jax.lax.scan(body, stream, (scanned, jnp.arange(model.steps)))
    check_asked_points(placed, keep, seen)
    observed = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, path)
    return Pass(stream, observed, points + kept)


def run_block(
    block: Block,
    stream: Stream,
    visible: jax.Array,
    spec: Spec,
    hook_points: HookPoints,
    known: Mapping[int, UndividedSoftmax],
) -> Stream:
    """h += attention(h); h += mlp(h). Writes of one sublayer are summed, then added."""
    stream = hook_points("resid_pre", stream)
    inputs = normalise(block.attention_norm, stream)
    written: Stream = {}
    for j, heads in enumerate(block.attention):
        mixed = written_by_heads(heads, inputs, visible, spec, hook_points, j, known.get(j))
        written = sum_of_slots(written, hook_points(f"heads.{j}", mixed))
    stream = hook_points("resid_mid", add_to_stream(stream, hook_points("attn", written)))
    inputs = normalise(block.mlp_norm, stream)
    written = {}
    for j, unit in enumerate(block.mlp):
        hidden = hook_points(f"units.{j}.hidden", activate(unit, inputs))
        written = sum_of_slots(
            written, hook_points(f"units.{j}", {unit.to: project(hidden, unit.out)})
        )
    stream = add_to_stream(stream, hook_points("mlp", written))
    return hook_points("resid_post", stream)


def place_hook(name: str, hook: Hook, model: Transformer) -> tuple[int | None, PlacedHook]:
    """Which block of prologue or step a hook belongs to, its point, and at which step."""
    if name.startswith("blocks.*."):
        return None, PlacedHook(name.removeprefix("blocks.*."), None, name, hook)
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if not match or int(match[1]) >= model.depth:
        raise ValueError(
            f"hook must be at blocks.I.POINT with I < depth = {model.depth}, got {name!r}"
        )
    at, first = int(match[1]), len(model.weights.prologue)
    if at < first:
        return at, PlacedHook(match[2], 0, name, hook)
    step, block = divmod(at - first, model.blocks_per_step)
    return first + block, PlacedHook(match[2], step, name, hook)


def check_hooked_points(hook_points: HookPoints) -> None:
    for hook in hook_points.hooks:
        if hook.step is not None and hook.point not in hook_points.seen:
            raise ValueError(
                f"hook must be at a point of its block, got {hook.name!r}; "
                f"the points are {', '.join(sorted(hook_points.seen))}"
            )


def check_asked_points(placed: Any, keep: bool | Collection[str], seen: set[str]) -> None:
    """Refuse what no block has: a hook of all blocks, a point to keep."""
    asked = [hook.point for at, hook in placed if at is None]
    for point in [*asked, *([] if isinstance(keep, bool) else keep)]:
        if point not in seen:
            raise ValueError(
                f"point must be one of some block, got {point!r}; "
                f"the points are {', '.join(sorted(seen))}"
            )

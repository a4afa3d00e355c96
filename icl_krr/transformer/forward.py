"""The forward pass: the only one, for constructed and trained weights alike, of one task."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..residual import Stream
from .attention import Weighing
from .heads import constant_patterns, read_tokens
from .hook_points import Hook, Placed, Taps, Where
from .mlp import activate, project
from .stream import add, normalise, plus
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
    `hooks` are {name: function (value, name) -> value}, see `taps` for the names. Depth is one
    `lax.scan`: compile time does not grow with it, nor memory, but for one stream a step where a
    gradient is taken.

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
    placed = [place(name, hook, model) for name, hook in (hooks or {}).items()]
    seen: set[str] = set()

    def taps(block: int, step: Any) -> Taps:
        return Taps([hook for at, hook in placed if at in (block, None)], Where(block, step), keep)

    points = []
    for i, block in enumerate(prologue):
        tap = taps(i, 0)
        stream = run_block(block, stream, visible, spec, tap, {})
        confirm(tap)
        seen |= tap.seen
        points.append(tap.kept)

    scanned, blocks = split_steps(model)
    touched = keep is True or any(at is None or at >= first for at, _ in placed)
    known = [] if touched else constant_patterns(model, stream, visible)

    def body(stream: Stream, now: Any) -> tuple[Stream, Any]:
        own, step = now
        kept = []
        for b, block in enumerate(blocks(own)):
            tap = taps(first + b, step)
            stream = run_block(block, stream, visible, spec, tap, known[b] if known else {})
            confirm(tap)
            seen.update(tap.seen)
            kept.append(tap.kept)
        return stream, (observe(stream), kept)

    start = observe(stream)
    # what a step computed is made again for its gradient: that is faster than to store it
    body = jax.checkpoint(body, prevent_cse=False)
    stream, (path, kept) = jax.lax.scan(body, stream, (scanned, jnp.arange(model.steps)))
    confirm_everywhere(placed, keep, seen)
    observed = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, path)
    return Pass(stream, observed, points + kept)


def run_block(
    block: Block,
    stream: Stream,
    visible: jax.Array,
    spec: Spec,
    tap: Taps,
    known: Mapping[int, Weighing],
) -> Stream:
    """h += attention(h); h += mlp(h). Writes of one sublayer are summed, then added."""
    stream = tap("resid_pre", stream)
    inputs = normalise(block.attention_norm, stream)
    written: Stream = {}
    for j, heads in enumerate(block.attention):
        mixed = read_tokens(heads, inputs, visible, spec, tap, j, known.get(j))
        written = plus(written, tap(f"heads.{j}", mixed))
    stream = tap("resid_mid", add(stream, tap("attn", written)))
    inputs = normalise(block.mlp_norm, stream)
    written = {}
    for j, unit in enumerate(block.mlp):
        hidden = tap(f"units.{j}.hidden", activate(unit, inputs))
        written = plus(written, tap(f"units.{j}", {unit.to: project(hidden, unit.out)}))
    stream = add(stream, tap("mlp", written))
    return tap("resid_post", stream)


def place(name: str, hook: Hook, model: Transformer) -> tuple[int | None, Placed]:
    """Which block of prologue or step a hook belongs to, its point, and at which step."""
    if name.startswith("blocks.*."):
        return None, Placed(name.removeprefix("blocks.*."), None, name, hook)
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
        if hook.step is not None and hook.point not in tap.seen:
            raise ValueError(
                f"hook must be at a point of its block, got {hook.name!r}; "
                f"the points are {', '.join(sorted(tap.seen))}"
            )


def confirm_everywhere(placed: Any, keep: bool | Collection[str], seen: set[str]) -> None:
    """Refuse what no block has: a hook of all blocks, a point to keep."""
    asked = [hook.point for at, hook in placed if at is None]
    for point in [*asked, *([] if isinstance(keep, bool) else keep)]:
        if point not in seen:
            raise ValueError(
                f"point must be one of some block, got {point!r}; "
                f"the points are {', '.join(sorted(seen))}"
            )

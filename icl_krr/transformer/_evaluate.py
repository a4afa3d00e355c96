"""Evaluate a model on one task or on a batch of tasks: embed, run the blocks, read out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .._core.devices import Axes, with_automatic_axes
from .._core.rescaling import rescaled, rescaled_without_jvp
from ..residual import Stream, embed, num_tokens
from ..residual._tokens import get_slot, keys_of_shard, positions, role_slice
from ..tasks import Task, map_tasks
from ._degrees import degrees_of_results, unit_of_task
from ._forward import forward
from ._hook_points import Hook
from ._sublayers import normalise
from ._tying import known_zeros, uniform_slots
from ._weights import Transformer

Kept = tuple[Any, list[dict[str, Any]]]
"""Slots at the start and after every step, {name: [steps + 1, ...]}, and points by block."""

Answer = Callable[[dict[str, jax.Array], Transformer, Task], Any]
"""Function from all read-outs by name, model and task to what a run returns."""


class Request(NamedTuple):
    """What is asked of a run of one task. It is static: every request has its own program.

    Stored are the slots `names` at the start and after every step, and the points `keep` inside of
    blocks (True: all). With `along`, the predictions at the supports precede those at the queries.
    The result of `answer` replaces the prediction.
    """

    names: tuple[str, ...] = ()
    keep: bool | tuple[str, ...] = ()
    hooks: tuple[tuple[str, Hook], ...] = ()
    along: bool = False
    answer: Answer | None = None


PREDICTION = Request()

STORED = 2**27
"""Bytes that the gradient of a batch of tasks may store, instead of computing them again."""


@partial(jax.jit, static_argnames=("request", "axes"))
def evaluate(
    model: Transformer,
    task: Task,
    request: Request = PREDICTION,
    *,
    stream: Stream | None = None,
    axes: Axes = (),
) -> tuple[Any, Kept]:
    """The prediction, and the values that were stored during the run.

    The run starts from `stream`, by default the embedding of the task. Devices along `axes` have
    the other supports.
    """
    every, answer = request.answer is not None, request.answer

    def run(model: Transformer, task: Task, stream: Stream | None) -> tuple[Any, Kept]:
        model = jax.tree.map(lambda weight: weight.astype(task.x.dtype), model)

        at = partial(evaluate_once, request, axes)
        made = degrees_of_results(model, request.names, bool(request.keep), every)
        # hooks may close over arrays of which a derivative is asked
        compute = rescaled_without_jvp if request.hooks else rescaled

        def once(task: Task, stream: Stream | None) -> tuple[Any, Kept]:
            given = task.y, task, model, stream
            return compute(unit_of_task(task, axes), at, made, *given) if made else at(*given)

        if task.num_outputs == model.spec.num_outputs:
            read, kept = once(task, stream)
        else:
            each = lambda y, stream: once(task.replace(y=y, y_query=None), stream)  # noqa: E731
            read, kept = jax.vmap(each, in_axes=-1, out_axes=-1)(task.y, stream)
        return (read if answer is None else answer(read, model, task)), kept

    return with_automatic_axes(run, task.x)(model, task, stream)


def embed_task(model: Transformer, task: Task, axes: Axes = ()) -> Stream:
    """The stream before the first block."""
    spec = model.spec
    stream = embed(model.weights.embedding, task, spec.tokens, spec.centred, axes)
    for slot, read in model.weights.embedding.items():
        if not read.blocks:  # a constant of the program, which the forward need not carry
            stream[slot] = known_zeros(stream[slot])
    for slot, table in model.weights.positions.items():
        stream[slot] = stream[slot] + table[positions(keys_of_shard(task, spec.tokens, axes))]
    return stream


def evaluate_once(
    request: Request,
    axes: Axes,
    y: jax.Array,
    task: Task,
    model: Transformer,
    stream: Stream | None,
) -> tuple[Any, Kept]:
    """The prediction, or all read-outs by name for an answer, and what is stored, for these y."""
    layout, tokens, task = model.layout, model.spec.tokens, task.replace(y=y)
    asked = role_slice(("query",), task, tokens)
    uniform = uniform_slots(model)
    if request.keep or request.hooks or stream is not None:
        uniform = frozenset()
    stream = embed_task(model, task, axes) if stream is None else stream

    # blocks have one row of these slots: the gradient of a bias is then one sum over all tokens
    rows = {slot: stream[slot][:1] for slot in uniform}
    shapes = {slot: value.shape for slot, value in stream.items()}

    def whole(stream: Stream) -> Stream:
        return {slot: jnp.broadcast_to(value, shapes[slot]) for slot, value in stream.items()}

    def like_y(values: jax.Array) -> jax.Array:
        return values[..., 0] if task.y.ndim == 1 and values.shape[-1] == 1 else values

    def readout(stream: Stream, asked: slice = asked, every: bool = False) -> Any:
        normed = normalise(model.weights.final_norm, whole(stream))
        queries = {slot: value[asked] for slot, value in normed.items()}
        prediction = like_y(model.weights.readout(queries))
        if not every:
            return prediction
        further = {name: read(queries) for name, read in model.weights.readouts.items()}
        return {"prediction": prediction, **further}

    def look(stream: Stream, name: str) -> jax.Array:
        if name == "prediction":
            return readout(stream)
        value = get_slot(whole(stream), layout, name)
        value = value[role_slice(layout[name].at, task, tokens)]
        return like_y(value) if layout[name].kind == "state" else value

    passed = forward(
        model,
        {**stream, **rows},
        keys_of_shard(task, tokens, axes),
        observe=lambda stream: {name: look(stream, name) for name in request.names},
        keep=request.keep,
        hooks=dict(request.hooks),
    )
    every = request.answer is not None
    read = readout(passed.stream, every=every)
    if request.along:
        # with interleaved tokens, those of x, each directly before the token of its y
        each = 2 if tokens == "interleaved" else 1
        supports = slice(1, num_tokens(task, tokens) - task.num_queries, each)
        before = readout(passed.stream, supports, every)
        read = jax.tree.map(lambda *parts: jnp.concatenate(parts), before, read)
    return read, (passed.observed, passed.points)


@partial(jax.jit, static_argnames=("chunk", "axes"))
def evaluate_batch(model: Transformer, tasks: Task, chunk: int, axes: Axes = ()) -> jax.Array:
    one = lambda task, model: evaluate(model, task, axes=axes)[0]  # noqa: E731
    if not stores_streams(model, tasks):
        # the gradient also recomputes each chunk, so that its memory does not grow with the batch
        one = jax.checkpoint(one, prevent_cse=False)
    return map_tasks(one, tasks, model, chunk=chunk)


def stores_streams(model: Transformer, tasks: Task) -> bool:
    """Whether the gradient of a batch stores the streams of all tasks: faster for wide matrices."""
    products = sum(leaf.size // len(leaf) for leaf in jax.tree.leaves(model.weights.steps))
    tokens, width = num_tokens(tasks, model.spec.tokens), model.layout.width
    patterns = 3 * tokens * model.num_heads
    streams = (model.steps + len(model.weights.prologue)) * width
    numbers = len(tasks.x) * tasks.num_outputs * tokens * (streams + patterns)
    return products > 64 * width and numbers * tasks.x.dtype.itemsize < STORED

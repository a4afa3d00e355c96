"""Evaluate a model on tasks: rescale, embed, run the blocks, read out; also on several devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from .._core import devices
from .._core.devices import Axes, Placement, with_automatic_axes
from .._core.rescaling import rescale_results, rescaled_jvp, times_power
from ..residual import Stream, embed, num_tokens
from ..residual._tokens import get_slot, keys_of_shard, positions, role_slice
from ..tasks import Task, map_tasks
from ..tasks._batches import shard_map_tasks
from ._forward import forward
from ._heads import normalise
from ._homogeneity import homogeneity, result_degrees, task_scale
from ._hook_points import PREDICTION, Request
from ._tying import known_zeros, token_invariant_slots
from ._weights import Transformer

Stored = tuple[Any, list[dict[str, Any]]]
"""Slots at the start and after every step, {name: [steps + 1, ...]}, and points by block."""

STORED = 2**27
"""Bytes that the gradient of a batch of tasks may store, instead of computing them again."""


def evaluate(
    model: Transformer,
    task: Task,
    request: Request = PREDICTION,
    stream: Stream | None = None,
    axes: Axes = (),
    rescale: bool = True,
) -> tuple[Any, Stored]:
    """The prediction, or all readouts by name for an answer, and what is stored during the run.

    The run starts from `stream`, by default the embedding of the task. Devices along `axes` have
    the other supports. A model that is homogeneous in y runs on y of order 1, unless `rescale` is
    False, and what it returns is scaled back.
    """
    model = jax.tree.map(lambda weight: weight.astype(task.x.dtype), model)
    degrees = result_degrees(model, request) if rescale else None
    scale = None
    if degrees is not None:
        scale = task_scale(task, axes)
        task = task.replace(y=times_power(task.y, scale, -1))
    invariant = frozenset()
    if not (request.keep or request.hooks or stream is not None):
        invariant = token_invariant_slots(model)
    stream = embed_task(model, task, axes) if stream is None else stream
    readout = Readout(model, task, request, {slot: value.shape for slot, value in stream.items()})
    passed = forward(
        model,
        # blocks have one row of these slots: the gradient of a bias is then one sum over all tokens
        {**stream, **{slot: stream[slot][:1] for slot in invariant}},
        keys_of_shard(task, model.spec.tokens, axes),
        observe=readout.slots,
        keep=request.keep,
        hooks=dict(request.hooks),
        store_products=request.store_products,
    )
    results = readout.result(passed.stream), (passed.observed, passed.points)
    return results if scale is None else rescale_results(scale, degrees, results)


evaluate_rescaled = jax.custom_jvp(evaluate, nondiff_argnums=(2, 4, 5))
"""`evaluate` of a model that is homogeneous in y, whose derivatives are those of `rescaled`."""


@partial(evaluate_rescaled.defjvp, symbolic_zeros=True)
def evaluate_rescaled_jvp(
    request: Request, axes: Axes, rescale: bool, primals: tuple, tangents: tuple
) -> tuple[Any, Any]:
    (model, task, stream), (d_model, d_task, d_stream) = primals, tangents

    def run(y: jax.Array, model: Transformer, task: Task, stream: Stream | None) -> Any:
        return evaluate(model, task.replace(y=y), request, stream, axes, rescale=False)

    scale, degrees = task_scale(task, axes), result_degrees(model, request)
    primals, tangents = (task.y, model, task, stream), (d_task.y, d_model, d_task, d_stream)
    return rescaled_jvp(scale, run, degrees, primals, tangents)


STATIC = ("request", "axes")
PROGRAMS = {one: jax.jit(one, static_argnames=STATIC) for one in (evaluate, evaluate_rescaled)}


def differentiable(model: Transformer, request: Request) -> Callable:
    """`evaluate_rescaled` where it applies; hooks may close over arrays that are differentiated."""
    rescales = homogeneity(model) is not None and not request.hooks
    return evaluate_rescaled if rescales else evaluate


def program(model: Transformer, task: Task, request: Request) -> Callable:
    """The jitted function that evaluates a model on one task."""
    automatic = AxisType.Explicit not in jax.typeof(task.x).sharding.mesh.axis_types
    together = task.num_outputs == model.spec.num_outputs
    if automatic and together and request.answer is None:
        return PROGRAMS[differentiable(model, request)]
    return evaluate_task


@partial(jax.jit, static_argnames=("request", "axes"))
def evaluate_task(
    model: Transformer,
    task: Task,
    request: Request = PREDICTION,
    *,
    stream: Stream | None = None,
    axes: Axes = (),
) -> tuple[Any, Stored]:
    """`evaluate` of a task with any number of outputs, on any mesh, with an answer or without.

    A model with one output runs each output of a task separately.
    """
    one = partial(differentiable(model, request), request=request, axes=axes)

    def run(model: Transformer, task: Task, stream: Stream | None) -> tuple[Any, Stored]:
        if task.num_outputs == model.spec.num_outputs:
            result, stored = one(model, task, stream=stream)
        else:

            def of_output(y: jax.Array, stream: Stream | None) -> Any:
                return one(model, task.replace(y=y, y_query=None), stream=stream)

            result, stored = jax.vmap(of_output, in_axes=-1, out_axes=-1)(task.y, stream)
        return result if request.answer is None else request.answer(result, model, task), stored

    return with_automatic_axes(run, task.x)(model, task, stream)


def embed_task(model: Transformer, task: Task, axes: Axes = ()) -> Stream:
    """The stream before the first block."""
    spec = model.spec
    stream = embed(model.weights.embedding, task, spec.tokens, spec.centred, axes)
    for slot, read in model.weights.embedding.items():
        if not read.blocks:  # a constant of the program, which the forward need not carry
            stream[slot] = known_zeros(stream[slot])
    for slot, table in model.weights.positions.items():
        at = positions(keys_of_shard(task, spec.tokens, axes))
        # JAX refuses table[at] for a table on a mesh, if the mesh divides the tasks
        stream[slot] = stream[slot] + jnp.take(table, at, axis=0, mode="clip")
    return stream


class Readout(NamedTuple):
    """What a run reads out of the streams of a task, whose slots have these shapes."""

    model: Transformer
    task: Task
    request: Request
    shapes: dict[str, tuple[int, ...]]

    def result(self, stream: Stream) -> Any:
        """The prediction, or all readouts by name for an answer, from the last stream."""
        tokens, every = self.model.spec.tokens, self.request.answer is not None
        queries = self.at(stream, role_slice(("query",), self.task, tokens), every)
        if not self.request.along:
            return queries
        # with interleaved tokens, those of x, each directly before the token of its y
        per_support = 2 if tokens == "interleaved" else 1
        end = num_tokens(self.task, tokens) - self.task.num_queries
        supports = self.at(stream, slice(1, end, per_support), every)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), supports, queries)

    def at(self, stream: Stream, tokens: slice, every: bool) -> Any:
        weights = self.model.weights
        normed = normalise(weights.final_norm, self.whole(stream))
        rows = {slot: value[tokens] for slot, value in normed.items()}
        prediction = self.like_y(weights.readout(rows))
        if not every:
            return prediction
        readouts = {name: read(rows) for name, read in weights.readouts.items()}
        return {"prediction": prediction, **readouts}

    def slots(self, stream: Stream) -> dict[str, jax.Array]:
        """The slots of the request, and the prediction, in one stream."""
        return {name: self.slot(stream, name) for name in self.request.names}

    def slot(self, stream: Stream, name: str) -> jax.Array:
        layout, tokens = self.model.layout, self.model.spec.tokens
        if name == "prediction":
            return self.at(stream, role_slice(("query",), self.task, tokens), every=False)
        value = get_slot(self.whole(stream), layout, name)
        value = value[role_slice(layout[name].at, self.task, tokens)]
        return self.like_y(value) if layout[name].kind == "state" else value

    def whole(self, stream: Stream) -> Stream:
        """The stream, in which all slots have a row for each token."""
        return {slot: jnp.broadcast_to(value, self.shapes[slot]) for slot, value in stream.items()}

    def like_y(self, values: jax.Array) -> jax.Array:
        return values[..., 0] if self.task.y.ndim == 1 and values.shape[-1] == 1 else values


@partial(jax.jit, static_argnames=("chunk", "axes"))
def evaluate_batch(model: Transformer, tasks: Task, chunk: int, axes: Axes = ()) -> jax.Array:
    def one(task: Task, model: Transformer) -> jax.Array:
        return evaluate_task(model, task, axes=axes)[0]

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


Parts = tuple[Any, Any, Any]
"""Pytrees of values [steps, tokens, ...] of tokens before the supports, of supports, and after."""


@partial(jax.jit, static_argnames=("request", "place"))
def evaluate_sharded(
    model: Transformer, task: Task, request: Request = PREDICTION, *, place: Placement
) -> tuple[Any, Stored]:
    """`evaluate` of one task whose supports are divided; every device has all queries."""
    per_support = 2 if model.spec.tokens == "interleaved" else 1

    def tokens_stored(name: str) -> tuple[int, int]:
        """How many tokens before the supports, and of each support, are stored of a slot."""
        at = ("query",) if name == "prediction" else model.layout[name].at
        return (1, per_support) if len(at) > 1 else (0, int(at == ("support",)))

    sizes = {name: tokens_stored(name) for name in request.names}

    def run(task: Task, model: Transformer) -> tuple[Parts, dict[str, Parts]]:
        result, (slots, _) = evaluate_task(model, task, request, axes=place.context)
        n = task.num_supports
        parts = {name: split(slots[name], first, each * n) for name, (first, each) in sizes.items()}
        return split(jax.tree.map(lambda value: value[None], result), 0, n * request.along), parts

    specs = (PartitionSpec(), PartitionSpec(None, place.context), PartitionSpec())
    out_specs = specs, dict.fromkeys(request.names, specs)
    result, slots = shard_map_tasks(run, task, place, out_specs, model)
    n = task.num_supports
    stored = {name: join(slots[name], each * n, place) for name, (_, each) in sizes.items()}
    whole = join(result, n * request.along, place)
    return jax.tree.map(lambda value: value[0], whole), (stored, [])


def split(values: Any, first: int, supports: int) -> Parts:
    end = first + supports
    places = slice(first), slice(first, end), slice(end, None)
    before, middle, after = (jax.tree.map(lambda v, at=at: v[:, at], values) for at in places)
    return before, middle, after


def join(parts: Parts, supports: int, place: Placement) -> Any:
    """The values of all tokens, without those of padding."""

    def joined(before: jax.Array, middle: jax.Array, after: jax.Array) -> jax.Array:
        middle = devices.unpad(middle, supports, place.mesh, axis=1)
        if before.shape[1] + after.shape[1] == 0:
            return middle
        if AxisType.Explicit in place.mesh.axis_types:
            middle = devices.reshard(middle, place.mesh, PartitionSpec())
        return jnp.concatenate([before, middle, after], axis=1)

    return jax.tree.map(joined, *parts)


@partial(jax.jit, static_argnames=("chunk", "place"))
def evaluate_batch_sharded(
    model: Transformer, tasks: Task, chunk: int, *, place: Placement
) -> jax.Array:
    """`evaluate_batch` of tasks that are divided over devices, or whose supports are, or both."""

    def run(tasks: Task, model: Transformer) -> jax.Array:
        return evaluate_batch(model, tasks, chunk, place.context)

    predictions = shard_map_tasks(run, tasks, place, PartitionSpec(place.tasks or None), model)
    return devices.unpad(predictions, len(tasks.x), place.mesh)

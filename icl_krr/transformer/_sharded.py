"""Evaluate a model on several devices: each has a part of the tasks, or of the supports."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from .._core import devices
from .._core.devices import Placement
from ..tasks import Task
from ..tasks._batches import shard_map_tasks
from ._evaluate import Stored, evaluate_batch, evaluate_task
from ._request import PREDICTION, Request
from ._weights import Transformer

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

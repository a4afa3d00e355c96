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
from ._evaluate import PREDICTION, Kept, Request, evaluate, evaluate_batch
from ._weights import Transformer

Parts = tuple[Any, Any, Any]
"""Pytrees of values [steps, tokens, ...] of tokens before the supports, of supports, and after."""


@partial(jax.jit, static_argnames=("request", "place"))
def evaluate_divided(
    model: Transformer, task: Task, request: Request = PREDICTION, *, place: Placement
) -> tuple[Any, Kept]:
    """`evaluate` of one task whose supports are divided; every device has all queries."""
    per_support = 2 if model.spec.tokens == "interleaved" else 1

    def tokens_stored(name: str) -> tuple[int, int]:
        """How many tokens before the supports, and of each support, are stored of a slot."""
        at = ("query",) if name == "prediction" else model.layout[name].at
        return (1, per_support) if len(at) > 1 else (0, int(at == ("support",)))

    sizes = {name: tokens_stored(name) for name in request.names}

    def run(task: Task, model: Transformer) -> tuple[Parts, dict[str, Parts]]:
        read, (slots, _) = evaluate(model, task, request, axes=place.context)
        n = task.num_supports
        cut = {name: split(slots[name], first, each * n) for name, (first, each) in sizes.items()}
        return split(jax.tree.map(lambda value: value[None], read), 0, n * request.along), cut

    made = (PartitionSpec(), PartitionSpec(None, place.context), PartitionSpec())
    read, slots = shard_map_tasks(
        run, task, place, (made, dict.fromkeys(request.names, made)), model
    )
    n = task.num_supports
    stored = {name: join(slots[name], each * n, place) for name, (_, each) in sizes.items()}
    whole = join(read, n * request.along, place)
    return jax.tree.map(lambda value: value[0], whole), (stored, [])


def split(values: Any, first: int, supports: int) -> Parts:
    end = first + supports
    take = lambda *part: jax.tree.map(lambda value: value[:, slice(*part)], values)  # noqa: E731
    return take(first), take(first, end), take(end, None)


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
def evaluate_batch_divided(
    model: Transformer, tasks: Task, chunk: int, *, place: Placement
) -> jax.Array:
    """`evaluate_batch` of tasks that are divided over devices, or whose supports are, or both."""
    run = lambda tasks, model: evaluate_batch(model, tasks, chunk, place.context)  # noqa: E731
    made = shard_map_tasks(run, tasks, place, PartitionSpec(place.tasks or None), model)
    return devices.unpad(made, len(tasks.x), place.mesh)

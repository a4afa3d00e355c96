"""How a batch of tasks, or the supports of one task, are divided over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec

from .. import devices
from ..devices import CONTEXT, TASKS, Placement
from .task import Task, kept


def placement(task: Task, mesh: Mesh | AbstractMesh | None = None) -> Placement | None:
    """Over which axes of which mesh to divide a task or a batch of tasks; None for one device.

    If `mesh` is not given, arrays that are divided stay as they are, and other batches are divided
    over the axis `tasks` of the mesh of `jax.set_mesh`.
    """
    batch, over_context = task.x.ndim > 2, False
    if mesh is not None:
        devices.check_mesh(mesh)
        mesh, over_context = devices.fitting(mesh, task.x), CONTEXT in mesh.axis_names
    elif (sharding := devices.sharding_of(task.x)) is not None:
        over = [devices.axes_of(sharding, i) for i in range(task.x.ndim - 1)]
        return Placement(sharding.mesh, *[()] * (not batch), *over) if any(over) else None
    around = mesh or (devices.ambient_mesh() if batch else None)
    over_tasks = batch and around is not None and TASKS in around.axis_names
    if around is None or not (over_tasks or over_context):
        return None
    return Placement(around, (TASKS,) * over_tasks, (CONTEXT,) * over_context)


def spread_tasks(
    function: Callable[..., Any],
    task: Task,
    place: Placement,
    made: Any,
    *others: Any,
) -> Any:
    """Call `function(part of the task, *others)` on all devices and join the results.

    Sizes that do not divide are padded: a batch by copies of its last task, supports by the mask.
    `made` are the `PartitionSpec`s of the results (see `icl_krr.devices.spread`).
    """
    whole = padded(task, place)
    given = (specs(whole, place), *(PartitionSpec() for _ in others))
    return devices.spread(function, place.mesh, given, made)(whole, *others)


def padded(task: Task, place: Placement) -> Task:
    if missing := -task.num_supports % place.parts(place.context):
        batch = task.x.shape[:-2]
        keep = jnp.broadcast_to(kept(task), (*batch, task.num_supports))
        grow = lambda value, axis: grown(value, missing, axis, "constant")  # noqa: E731
        task = task.replace(
            x=grow(task.x, len(batch)), y=grow(task.y, len(batch)), mask=grow(keep, len(batch))
        )
    if missing := -len(task.x) % place.parts(place.tasks) if place.tasks else 0:
        task = jax.tree.map(lambda value: grown(value, missing, 0, "edge"), task)
    return task


def without_padding(value: jax.Array, size: int, axis: int, place: Placement) -> jax.Array:
    if value.shape[axis] == size:
        return value
    if AxisType.Explicit in place.mesh.axis_types:  # such an array cannot be divided unevenly
        value = devices.reshard(value, place.mesh, PartitionSpec())
    return jax.lax.slice_in_dim(value, 0, size, axis=axis)


def grown(value: jax.Array, missing: int, axis: int, mode: str) -> jax.Array:
    return jnp.pad(value, [(0, missing * (i == axis)) for i in range(value.ndim)], mode=mode)


def specs(task: Task, place: Placement) -> Task:
    """A `PartitionSpec` for each field of a task."""
    batch = [place.tasks or None] * (task.x.ndim - 2)
    supports, queries = PartitionSpec(*batch, place.context or None), PartitionSpec(*batch)
    of_supports = {"x": supports, "y": supports, "mask": supports}
    return jax.tree_util.tree_map_with_path(
        lambda at, _: of_supports.get(at[0].name, queries), task
    )

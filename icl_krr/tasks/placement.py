"""How a batch of tasks, or the supports of one task, are divided over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .. import devices
from ..devices import CONTEXT, TASKS, Placement
from .task import Task, kept


def placement(task: Task, mesh: Mesh | None = None) -> Placement | None:
    """Over which axes of which mesh to divide a task or a batch of tasks; None for one device.

    If `mesh` is not given, arrays that are divided stay as they are.
    """
    batch = task.x.ndim > 2
    if mesh is not None:
        devices.check_mesh(mesh)
        named = {*mesh.axis_names}
        over = [(axis,) * (axis in named) for axis in ([TASKS] if batch else []) + [CONTEXT]]
        if not any(over):
            raise ValueError(
                f"mesh must have an axis {CONTEXT!r} for one task, whose supports it divides, got "
                f"the axes {mesh.axis_names}; use jax.make_mesh(({mesh.size},), ({CONTEXT!r},))"
            )
        whole = devices.fitting(mesh, task.x)
    elif (sharding := devices.sharding_of(task.x)) is not None:
        whole = sharding.mesh
        over = [devices.axes_of(sharding, i) for i in range(task.x.ndim - 1)]
    else:
        return None
    return Placement(whole, *[()] * (not batch), *over) if any(over) else None


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

        def grown(value: jax.Array) -> jax.Array:
            return jnp.pad(value, [(0, missing * (i == len(batch))) for i in range(value.ndim)])

        task = task.replace(x=grown(task.x), y=grown(task.y), mask=grown(keep))
    return devices.filled_up(task, place.parts(place.tasks)) if place.tasks else task


def own_part(task: Task, place: Placement | None) -> Task:
    """The shapes of the part of a task that each device gets; the task itself for one device."""
    if place is None:
        return task

    def part(leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        over = NamedSharding(place.mesh, spec)
        sizes = [place.parts(devices.axes_of(over, i)) for i in range(leaf.ndim)]
        shape = [-(-size // parts) for size, parts in zip(leaf.shape, sizes, strict=True)]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(part, task, specs(task, place))


def specs(task: Task, place: Placement) -> Task:
    """A `PartitionSpec` for each field of a task."""
    batch = [place.tasks or None] * (task.x.ndim - 2)
    supports, queries = PartitionSpec(*batch, place.context or None), PartitionSpec(*batch)
    of_supports = {"x": supports, "y": supports, "mask": supports}
    return jax.tree_util.tree_map_with_path(
        lambda at, _: of_supports.get(at[0].name, queries), task
    )

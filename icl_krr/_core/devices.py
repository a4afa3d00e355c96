"""Several devices: the axes of a mesh that this library knows, and sums over the devices of one.

A mesh of devices has an axis `tasks`, over which batches of tasks are divided, an axis `context`,
over which the supports of each task are divided, or both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from . import checks
from .xla_workarounds import ordered_collectives

TASKS, CONTEXT = "tasks", "context"

Axes = tuple[str, ...]
"""Axes of a mesh. An array that is divided over several axes is divided over all their devices."""


class Placement(NamedTuple):
    """The axes of a mesh over which the tasks of a batch, and the supports, are divided.

    Attributes:
        mesh: mesh of devices.
        tasks: names of the axes over which the tasks of a batch are divided.
        context: names of the axes over which the supports of each task are divided.
    """

    mesh: Mesh | AbstractMesh
    tasks: Axes = ()
    context: Axes = ()

    def parts(self, axes: Axes) -> int:
        """Return the number of devices along axes of the mesh.

        Args:
            axes: names of the axes.
        """
        return math.prod(self.mesh.shape[axis] for axis in axes)


def check_mesh(mesh: Any) -> None:
    """Raise an error unless `mesh` is a mesh with an axis that is called tasks or context."""
    checks.instance("mesh", mesh, Mesh, "a jax.sharding.Mesh")
    if not {TASKS, CONTEXT} & {*mesh.axis_names}:
        raise ValueError(
            f"mesh must have an axis {TASKS!r} (over which tasks are divided) or {CONTEXT!r} "
            f"(over which supports are divided), got the axes {mesh.axis_names}; "
            f"use jax.make_mesh(({mesh.size},), ({TASKS!r},))"
        )


def mesh_for(mesh: Mesh, value: Any) -> Mesh:
    """The mesh for an array: without explicit axes if the array is not on that mesh."""
    typed = not (jax.sharding.get_abstract_mesh().empty and jax.typeof(value).sharding.mesh.empty)
    return mesh if typed else automatic_mesh(mesh)


def automatic_mesh(mesh: Mesh) -> Mesh:
    """The same devices and axes; JAX chooses how to divide arrays without a sharding."""
    return Mesh(mesh.devices, mesh.axis_names)


def ambient_mesh() -> AbstractMesh | None:
    """The mesh of `jax.set_mesh`; None for one device, and inside of `jax.shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    one_device = mesh.empty or mesh.size == 1
    return None if one_device or AxisType.Manual in mesh.axis_types else mesh


def spans_processes() -> bool:
    """Whether the mesh of `jax.set_mesh` has devices of several processes."""
    mesh = jax.sharding.get_mesh()
    return not mesh.empty and mesh.is_multi_process


def explicit_mesh() -> Mesh | None:
    """The mesh of `jax.set_mesh` if it has explicit axes, or None."""
    mesh = jax.sharding.get_mesh()
    return mesh if AxisType.Explicit in mesh.axis_types else None


def off_explicit_meshes(values: Any) -> Any:
    """The same arrays, none of a type that belongs to a mesh with explicit axes."""

    def off(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        mesh = jax.typeof(leaf).sharding.mesh
        return leaf if AxisType.Explicit not in mesh.axis_types else jnp.asarray(np.asarray(leaf))

    return jax.tree.map(off, values)


def sharding_of(value: Any) -> NamedSharding | None:
    """The mesh and the axes over which an array is divided; None for one device, or if not known.

    Inside of `jax.jit`, it is known for meshes with explicit axes only.
    """
    for sharding in (jax.typeof(value).sharding, getattr(value, "sharding", None)):
        if isinstance(sharding, NamedSharding) and any(sharding.spec):
            manual = AxisType.Manual in sharding.mesh.axis_types
            return None if manual or sharding.mesh.size == 1 else sharding
    return None


def axes_of(sharding: NamedSharding, dimension: int) -> Axes:
    """The axes of the mesh over which one dimension of an array is divided."""
    spec = (*sharding.spec, *[None] * (dimension + 1 - len(sharding.spec)))[dimension]
    return (spec,) if isinstance(spec, str) else tuple(spec or ())


def shard_map(function: Callable, mesh: Mesh | AbstractMesh, in_specs, out_specs) -> Callable:
    """Return `jax.shard_map` of a function; arguments may be on a mesh with explicit axes."""

    def part(*arguments: Any) -> Any:
        return function(*ordered_collectives(arguments))

    # scans in `function` may start from constants, which the check of replication refuses
    run = jax.shard_map(part, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def call(*arguments: Any) -> Any:
        if AxisType.Explicit in mesh.axis_types:
            arguments = jax.tree.map(
                lambda spec, part: jax.tree.map(lambda leaf: reshard(leaf, mesh, spec), part),
                in_specs,
                arguments,
                is_leaf=lambda spec: isinstance(spec, PartitionSpec),
            )
        return run(*arguments)

    return jax.jit(call)


def shard_over_tasks(run: Callable, values: Any, *shared: Any, whole: bool = True) -> Any:
    """Return `run(values, *shared)`, computed in parts by the devices of `jax.set_mesh`.

    The first axis of `values` is divided over the axis `tasks` of the mesh. If several processes
    share the mesh, each gets the whole result, unless `whole` is False: then each can read the part
    that is on its own devices.
    """
    mesh = ambient_mesh()
    if mesh is None or TASKS not in mesh.axis_names:
        return run(values, *shared)
    results = shard_over(mesh, (TASKS,), run, values, *shared)
    if not whole or jax.process_count() == 1:
        return results
    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, replicated), results)


def shard_over(mesh: Mesh | AbstractMesh, axes: Axes, run: Callable, values, *shared) -> Any:
    """Return `run(values, *shared)`; the first axis of `values` is divided over axes of a mesh.

    If its size does not divide evenly, some devices compute the last entry again. JAX cannot
    differentiate a loop by arrays of the mesh that `run` closes over, so these must be `shared`.
    """
    size = len(jax.tree.leaves(values)[0])
    values = pad_to_multiple(values, Placement(mesh).parts(axes))
    spec = PartitionSpec(axes)
    in_specs = (spec, *[PartitionSpec()] * len(shared))
    results = shard_map(run, mesh, in_specs, spec)(values, *shared)
    return jax.tree.map(lambda value: unpad(value, size, mesh), results)


def pad_to_multiple(values: Any, parts: int) -> Any:
    """The arrays with copies of their last entry, so that the first axis divides evenly."""
    size = len(jax.tree.leaves(values)[0])
    if size % parts == 0:
        return values
    indices = jnp.minimum(jnp.arange(size + -size % parts), size - 1)
    return jax.tree.map(lambda value: value[indices], values)


def unpad(value: jax.Array, size: int, mesh: Any, axis: int = 0) -> jax.Array:
    if value.shape[axis] == size:
        return value
    if AxisType.Explicit in mesh.axis_types:  # such an array cannot be divided unevenly
        value = reshard(value, mesh, PartitionSpec())
    return jax.lax.slice_in_dim(value, 0, size, axis=axis)


def with_automatic_axes(function: Callable, like: Any) -> Callable:
    """The function, for which JAX chooses how to divide arrays also if their mesh is explicit."""
    mesh = jax.typeof(like).sharding.mesh
    if AxisType.Explicit not in mesh.axis_types:
        return function

    def call(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh):
            return jax.sharding.auto_axes(function, out_sharding=PartitionSpec())(*arguments)

    return call


def reshard(value: Any, mesh: Any, spec: PartitionSpec) -> jax.Array:
    return jax.reshard(value, NamedSharding(mesh, spec))


def psum(part: jax.Array, axes: Axes) -> jax.Array:
    """The sum of the parts of all devices along some axes; the part itself without axes."""
    return jax.lax.psum(part, axes) if axes else part


def pmax(part: jax.Array, axes: Axes) -> jax.Array:
    """The largest of the parts of all devices; the part itself without axes."""
    return jax.lax.pmax(part, axes) if axes else part


def ppermute(part: Any, axes: Axes, distance: int = 1, ring: bool = False) -> Any:
    """The part of the device `distance` places before; in a ring, the last is before the first.

    Without a ring, devices with none before them get zeros.
    """
    size = jax.lax.axis_size(axes)
    pairs = [(i, (i + distance) % size) for i in range(size) if ring or i + distance < size]
    return jax.lax.ppermute(part, axes, pairs)


def exclusive_cumsum(part: jax.Array, axes: Axes) -> jax.Array:
    """The sum of the parts of all devices before this one, in a logarithmic number of exchanges."""
    size = jax.lax.axis_size(axes)
    distance = 1
    sums = ppermute(part, axes)
    while distance < size - 1:
        sums += ppermute(sums, axes, distance)
        distance *= 2
    return sums

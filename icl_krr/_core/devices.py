"""Several devices: the axes of a mesh that this library knows, and sums over the devices of one.

A mesh of devices has an axis `tasks`, over which batches of tasks are divided, an axis `context`,
over which the supports of each task are divided, or both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from . import checks

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
        size = 1
        for axis in axes:
            size *= self.mesh.shape[axis]
        return size


def check_mesh(mesh: Any) -> None:
    """Raise an error unless `mesh` is a mesh with an axis that is called tasks or context."""
    checks.instance("mesh", mesh, Mesh, "a jax.sharding.Mesh")
    if not {TASKS, CONTEXT} & {*mesh.axis_names}:
        raise ValueError(
            f"mesh must have an axis {TASKS!r} (over which tasks are divided) or {CONTEXT!r} "
            f"(over which supports are divided), got the axes {mesh.axis_names}; "
            f"use jax.make_mesh(({mesh.size},), ({TASKS!r},))"
        )


def fitting(mesh: Mesh, value: Any) -> Mesh:
    """The mesh for arrays like this: without explicit axes, if the array is not on that mesh."""
    typed = not (jax.sharding.get_abstract_mesh().empty and jax.typeof(value).sharding.mesh.empty)
    return mesh if typed else automatic(mesh)


def automatic(mesh: Mesh) -> Mesh:
    """The same devices and axes, where JAX chooses how to divide what nobody divides."""
    return Mesh(mesh.devices, mesh.axis_names)


def ambient_mesh() -> AbstractMesh | None:
    """The mesh of `jax.set_mesh`; None for one device, and inside of `jax.shard_map`."""
    mesh = jax.sharding.get_abstract_mesh()
    alone = mesh.empty or mesh.size == 1
    return None if alone or AxisType.Manual in mesh.axis_types else mesh


def over_processes() -> bool:
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


def spread(function: Callable, mesh: Mesh | AbstractMesh, given: Any, made: Any) -> Callable:
    """Run a function on every device of a mesh, each with its own part of the arrays.

    `given` and `made` are `PartitionSpec`s of the arguments and of the results.
    """

    def part(*arguments: Any) -> Any:
        return function(*in_order(arguments))

    # scans in `function` may start from constants, which the check of replication refuses
    run = jax.shard_map(part, mesh=mesh, in_specs=given, out_specs=made, check_vma=False)

    def call(*arguments: Any) -> Any:
        if AxisType.Explicit in mesh.axis_types:
            arguments = jax.tree.map(
                lambda spec, part: jax.tree.map(lambda leaf: reshard(leaf, mesh, spec), part),
                given,
                arguments,
                is_leaf=lambda spec: isinstance(spec, PartitionSpec),
            )
        return run(*arguments)

    return jax.jit(call)


def in_parts(run: Callable, values: Any, *shared: Any, whole: bool = True) -> Any:
    """Return `run(values, *shared)`, which the devices of `jax.set_mesh` compute in parts.

    The first axis of `values` is divided over the axis `tasks` of the mesh. If several processes
    share the mesh, each gets the whole result, unless `whole` is False: then each can read the part
    that is on its own devices.
    """
    mesh = ambient_mesh()
    if mesh is None or TASKS not in mesh.axis_names:
        return run(values, *shared)
    made = in_parts_of(mesh, (TASKS,), run, values, *shared)
    if not whole or jax.process_count() == 1:
        return made
    everywhere = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda value: jax.lax.with_sharding_constraint(value, everywhere), made)


def in_parts_of(
    mesh: Mesh | AbstractMesh, axes: Axes, run: Callable, values: Any, *shared: Any
) -> Any:
    """Return `run(values, *shared)`; the first axis of `values` is divided over axes of a mesh.

    If its size does not divide evenly, some devices compute the last entry again. JAX cannot
    differentiate a loop by arrays of the mesh that `run` closes over, so these must be `shared`.
    """
    size, place = len(jax.tree.leaves(values)[0]), PartitionSpec(axes)
    values = filled_up(values, Placement(mesh).parts(axes))
    given = (place, *[PartitionSpec()] * len(shared))
    made = spread(run, mesh, given, place)(values, *shared)
    return jax.tree.map(lambda value: without_padding(value, size, mesh), made)


def filled_up(values: Any, parts: int) -> Any:
    """The arrays with copies of their last entry, so that the first axis divides evenly."""
    size = len(jax.tree.leaves(values)[0])
    if size % parts == 0:
        return values
    chosen = jnp.minimum(jnp.arange(size + -size % parts), size - 1)
    return jax.tree.map(lambda value: value[chosen], values)


def without_padding(value: jax.Array, size: int, mesh: Any, axis: int = 0) -> jax.Array:
    if value.shape[axis] == size:
        return value
    if AxisType.Explicit in mesh.axis_types:  # such an array cannot be divided unevenly
        value = reshard(value, mesh, PartitionSpec())
    return jax.lax.slice_in_dim(value, 0, size, axis=axis)


def with_automatic_axes(function: Callable, like: Any) -> Callable:
    """The function, in which JAX chooses how to divide arrays, also if their mesh is explicit."""
    mesh = jax.typeof(like).sharding.mesh
    if AxisType.Explicit not in mesh.axis_types:
        return function

    def call(*arguments: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh):
            return jax.sharding.auto_axes(function, out_sharding=PartitionSpec())(*arguments)

    return call


def reshard(value: Any, mesh: Any, spec: PartitionSpec) -> jax.Array:
    return jax.reshard(value, NamedSharding(mesh, spec))


def total(part: jax.Array, axes: Axes) -> jax.Array:
    """The sum of the parts of all devices along some axes; the part itself without axes."""
    return jax.lax.psum(part, axes) if axes else part


def largest(part: jax.Array, axes: Axes) -> jax.Array:
    """The largest of the parts of all devices; the part itself without axes."""
    return jax.lax.pmax(part, axes) if axes else part


def from_before(part: Any, axes: Axes, distance: int = 1, ring: bool = False) -> Any:
    """The part of the device that many places before; in a ring, the last is before the first.

    Without a ring, devices with none before them get zeros.
    """
    size = jax.lax.axis_size(axes)
    pairs = [(i, (i + distance) % size) for i in range(size) if ring or i + distance < size]
    return jax.lax.ppermute(part, axes, pairs)


def in_order(values: Any) -> Any:
    """The same arrays, none of which is computed before all are; so are their gradients.

    On a CPU, XLA may start exchanges that do not depend on each other in another order on another
    device, such as those of two heads. The devices would then wait for each other for ever.
    """
    leaves, structure = jax.tree.flatten(values)
    floats = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size
    ]
    if jax.default_backend() != "cpu" or len(floats) < 2:
        return values
    dtype = jnp.result_type(*(leaves[i] for i in floats))
    some = jnp.stack([leaves[i][(0,) * leaves[i].ndim].astype(dtype) for i in floats])
    # XLA must compute a number before it multiplies it by 0: the number could be NaN
    nothing = 0 * jnp.sum(jnp.where(jnp.isfinite(some), some, 0))
    for i in floats:
        leaves[i] = leaves[i] + nothing.astype(leaves[i].dtype)
    return structure.unflatten(leaves)


def sum_before(part: jax.Array, axes: Axes) -> jax.Array:
    """The sum of the parts of all devices before this one, in a logarithmic number of exchanges."""
    size, distance = jax.lax.axis_size(axes), 1
    sums = from_before(part, axes)
    while distance < size - 1:
        sums += from_before(sums, axes, distance)
        distance *= 2
    return sums

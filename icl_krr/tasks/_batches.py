"""Batches of tasks: in chunks that fit the CPU caches, and divided over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._core import checks, devices, memory_limit
from .._core.devices import CONTEXT, TASKS, Placement, shard_over_tasks
from .._core.pytree import jit_if_concrete
from ._samplers import Sampler, sample
from ._task import Task, check_axes, support_mask

TOKENS = 2048
"""Most tokens in one chunk on a CPU. With more, XLA divides small operations among its threads,
which costs more time than the operations take."""


def map_tasks(function: Callable, tasks: Task, *shared: Any, chunk: int | None = None) -> Any:
    """Apply `function` to every task of a batch and stack the results.

    The result equals `jax.vmap(function)(tasks)`, but JAX computes only `chunk` tasks at a time. On
    CPUs this is several times faster for many small tasks, and the working memory does not grow
    with the batch. You can jit and differentiate a call of `map_tasks`.

    If the batch is divided over the devices of a mesh, each device computes its own tasks. A batch
    that is not divided is divided over the axis `tasks` of the mesh of `jax.set_mesh`, if there is
    one. In a batch that does not divide evenly, some devices compute the last task again.

    Args:
        function: function of one `Task`, and of `shared`, that returns a pytree of arrays.
        *shared: pytrees of arrays that are the same for all tasks, such as a model. If the batch is
            divided, gradients can be taken with respect to these, but not with respect to other
            arrays of the mesh.
        chunk: number of tasks computed at once, >= 1. By default, the largest power of two that
            fits the caches on a CPU, and the whole batch on other devices.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 5)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=0.1)
    >>> jax.jit(lambda tasks: ik.map_tasks(solve, tasks))(tasks).prediction.shape
    (5, 1)
    """
    checks.function("function", function)
    check_axes(tasks, 1)
    size = chunk_size(tasks, chunk)

    def run(tasks: Task, *shared: Any) -> Any:
        return jax.lax.map(lambda task: function(task, *shared), tasks, batch_size=size)

    sharding = devices.sharding_of(tasks.x)
    if sharding is not None and (axes := devices.axes_of(sharding, 0)):
        return devices.shard_over(sharding.mesh, axes, run, tasks, *shared)
    return shard_over_tasks(run, tasks, *shared)


def batch(tasks: Sequence[Task]) -> Task:
    """Make one batch of several tasks; shorter ones get further supports, which are masked.

    >>> of = lambda n: Task(x=np.ones((n, 2)), y=np.ones(n), x_query=np.ones((1, 2)))
    >>> both = batch([of(3), of(5)])
    >>> both, both.mask.sum(axis=1).tolist()
    (Task(x=f32[2,5,2], y=f32[2,5], x_query=f32[2,1,2], mask=bool[2,5]), [3, 5])
    """
    checks.instance("tasks", tasks, (list, tuple), "a list of tasks")
    if not tasks:
        raise ValueError("tasks must have at least one task, got none")
    kinds = {}
    for one in tasks:
        check_axes(one, hint="give each of its tasks, jax.tree.map(lambda a: a[i], batch)")
        shapes = one.x.shape[1:], one.y.shape[1:], one.x_query.shape, np.shape(one.y_query)
        kinds.setdefault((one.x.dtype, shapes), one)
    if len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise ValueError(f"tasks must differ in n only, got {first!r} and {second!r}")
    most = max(one.num_supports for one in tasks)
    masked = any(one.mask is not None or one.num_supports < most for one in tasks)
    whole = [_pad_supports(one, most - one.num_supports) if masked else one for one in tasks]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *whole)


def sample_batch(keys: jax.Array, sampler: Sampler, active: Any = None) -> Task:
    """Draw one task for each key, on all devices along the axis `tasks` of `jax.set_mesh`.

    On a CPU a task does not depend on the others of its batch, which may be on other devices: in
    float32, another rounding of a kernel matrix turns its eigenvectors, and with them the draw of a
    Gaussian process.
    """
    return shard_over_tasks(lambda keys: sample_each(keys, sampler, active), keys, whole=False)


@jit_if_concrete
def sample_each(keys: jax.Array, sampler: Sampler, active: Any) -> Task:
    size = None if jax.default_backend() == "cpu" else len(keys)
    return jax.lax.map(lambda key: sample(key, sampler, active), keys, batch_size=size)


def task_shapes(family: Sampler) -> Task:
    """The shapes and dtypes of a task, without its numbers."""
    return jax.eval_shape(lambda key: sample(key, family), jax.random.key(0))


def check_batch(count: int, one: Task) -> None:
    """Raise MemoryError if `count` tasks like this one do not fit into the free memory."""
    numbers = count * sum(leaf.size for leaf in jax.tree.leaves(one))
    memory_limit.check(f"{count} tasks", numbers, one.x, "use fewer tasks")


def chunk_size(tasks: Task, chunk: int | None, values: int = 1) -> int:
    """Return `chunk` if it is given, else a number of tasks that suits the platform.

    A program that stores more of every token, as a gradient does, holds so many times the `values`.
    """
    if chunk is not None:
        checks.count("chunk", chunk)
        return chunk
    if jax.default_backend() != "cpu":
        return tasks.x.shape[0]
    most = max(1, TOKENS // (values * (1 + tasks.num_supports + tasks.num_queries)))
    # a power of two divides most batches, and a remainder would need a second program
    return len(tasks.x) if most >= len(tasks.x) else 2 ** (most.bit_length() - 1)


def unstack(tasks: Task) -> list[Task]:
    """The tasks of a batch one by one, as NumPy arrays."""
    arrays = jax.tree.map(np.asarray, tasks)
    return [jax.tree.map(lambda field, i=i: field[i], arrays) for i in range(len(tasks.x))]


def placement(task: Task, mesh: Mesh | None = None) -> Placement | None:
    """Over which axes of which mesh to divide a task or a batch of tasks; None for one device.

    If `mesh` is not given, arrays that are divided stay as they are.
    """
    batch = task.x.ndim > 2
    if mesh is not None:
        devices.check_mesh(mesh)
        named = {*mesh.axis_names}
        over = [(axis,) if axis in named else () for axis in ([TASKS] if batch else []) + [CONTEXT]]
        if not any(over):
            raise ValueError(
                f"mesh must have an axis {CONTEXT!r} for one task, whose supports it divides, got "
                f"the axes {mesh.axis_names}; use jax.make_mesh(({mesh.size},), ({CONTEXT!r},))"
            )
        whole = devices.mesh_for(mesh, task.x)
    elif (sharding := devices.sharding_of(task.x)) is not None:
        whole = sharding.mesh
        over = [devices.axes_of(sharding, i) for i in range(task.x.ndim - 1)]
    else:
        return None
    if not any(over):
        return None
    return Placement(whole, *over) if batch else Placement(whole, (), *over)


def shard_map_tasks(function: Callable, task: Task, place: Placement, out_specs, *others) -> Any:
    """Call `function(shard of the task, *others)` on all devices and join the results.

    Sizes that do not divide are padded: a batch by copies of its last task, supports by the mask.
    `out_specs` are the `PartitionSpec`s of the results (see `icl_krr._core.devices.shard_map`).
    """
    whole = _padded(task, place)
    in_specs = (_partition_specs(whole, place), *(PartitionSpec() for _ in others))
    return devices.shard_map(function, place.mesh, in_specs, out_specs)(whole, *others)


def _padded(task: Task, place: Placement) -> Task:
    if count := -task.num_supports % place.parts(place.context):
        task = _pad_supports(task, count)
    return devices.pad_to_multiple(task, place.parts(place.tasks)) if place.tasks else task


def _pad_supports(task: Task, count: int) -> Task:
    """The task with so many more supports, which are masked."""
    batch = task.x.shape[:-2]
    keep = jnp.broadcast_to(support_mask(task), (*batch, task.num_supports))

    def pad(value: jax.Array) -> jax.Array:
        return jnp.pad(value, [(0, count * (i == len(batch))) for i in range(value.ndim)])

    return task.replace(x=pad(task.x), y=pad(task.y), mask=pad(keep))


def device_shard(task: Task, place: Placement | None) -> Task:
    """The shapes of the shard of a task on each device; the task itself for one device."""
    if place is None:
        return task

    def part(leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        over = NamedSharding(place.mesh, spec)
        sizes = [place.parts(devices.axes_of(over, i)) for i in range(leaf.ndim)]
        shape = [-(-size // parts) for size, parts in zip(leaf.shape, sizes, strict=True)]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    return jax.tree.map(part, task, _partition_specs(task, place))


def _partition_specs(task: Task, place: Placement) -> Task:
    """A `PartitionSpec` for each field of a task."""
    batch = [place.tasks or None] * (task.x.ndim - 2)
    supports, queries = PartitionSpec(*batch, place.context or None), PartitionSpec(*batch)
    of_supports = {"x": supports, "y": supports, "mask": supports}
    return jax.tree_util.tree_map_with_path(lambda k, _: of_supports.get(k[0].name, queries), task)

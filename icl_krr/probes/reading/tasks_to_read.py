"""Tasks made for reading: outputs along an eigenvector of K, and all prefixes of a context."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import checks
from ...kernels import Kernel, check_kernel
from ...linalg import eigh
from ...tasks import Task, map_tasks, system
from ...tasks.task import check_axes, check_plain, kept


def along_eigenvector(kernel: Kernel, tasks: Task, index: int = 0) -> Task:
    r"""Replace the outputs of every task by an eigenvector of its kernel matrix.

    With $K = \sum_i \sigma_i u_i u_i^T$, the new outputs are $y = |y_0| u_i$, where $y_0$ are the
    outputs of the given task. The sign of $u_i$ is that with $u_i^T y_0 \geq 0$. A solver that
    applies a function $q$ of $K$ to $y$ then predicts $q(\sigma_i) k(x)^T y$. So one number of the
    filter explains all predictions, and `read_filter` reads it without a derivative.

    Args:
        tasks: batch with y [b, n], without masks; `y_query` is dropped.
        index: index of the eigenvalue, 0 for the largest, at most n - 1.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x = np.array([[[2.0], [0.0]]])
    >>> tasks = ik.Task(x=x, y=[[3.0, 4.0]], x_query=x)
    >>> along_eigenvector(ik.Linear(), tasks).y.tolist()
    [[5.0, 0.0]]
    """
    check_kernel(kernel)
    check_plain(tasks)
    checks.count("index", index, minimum=0)
    if index >= tasks.num_supports:
        raise ValueError(f"index must be < n = {tasks.num_supports}, got {index}")
    return tasks.replace(y=eigenvectors(kernel, tasks, index), y_query=None)


@partial(jax.jit, static_argnums=2)
def eigenvectors(kernel: Kernel, tasks: Task, index: int) -> Float[Array, "b n"]:
    def of_task(task: Task) -> jax.Array:
        u = eigh(system(kernel, task).gram)[1][:, -1 - index]
        size = jnp.linalg.norm(task.y)
        return jnp.where(jnp.sum(u * task.y) < 0, -size, size) * u

    return map_tasks(of_task, tasks)


def prefixes(tasks: Task, positions: tuple[int, ...]) -> Task:
    """Make a task of each position of each context, with the earlier supports and one query.

    The query is the input at the position. A causal model answers at position i as it answers the
    same query after i supports. So its answers at several positions of b contexts, in this order,
    are the answers of one batch for `identify_arrays`: first all positions of the first context.

    Args:
        positions: numbers i of supports before the query, from 0 to n - 1. Masks hide the others.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x = np.arange(3.0).reshape(1, 3, 1)
    >>> found = prefixes(ik.Task(x=x, y=x[..., 0], x_query=x), (1, 2))
    >>> found.mask.tolist(), found.x_query[:, 0, 0].tolist()
    ([[True, False, False], [True, True, False]], [1.0, 2.0])
    """
    check_axes(tasks, 1, "tasks")
    checks.instance("positions", positions, (tuple, list), "a tuple of integers")
    count = tasks.num_supports
    for position in positions:
        checks.count("positions", position, 0)
        if position >= count:
            raise ValueError(f"positions must be < n = {count}, got {position}")
    if not positions:
        raise ValueError("positions must have at least one number, got none")
    return cut_before(tasks, jax.device_put(np.asarray(positions)))


@jax.jit
def cut_before(tasks: Task, at: jax.Array) -> Task:
    def of_position(task: Task, position: jax.Array) -> Task:
        return task.replace(
            mask=kept(task) & (jnp.arange(task.num_supports) < position),
            x_query=task.x[position][None],
            y_query=task.y[position][None],
        )

    each = jax.vmap(lambda task: jax.vmap(lambda i: of_position(task, i))(at))(tasks)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), each)

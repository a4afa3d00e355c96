"""Tasks whose outputs lie along an eigenvector of K: they read the filter at one eigenvalue."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..linalg import eigh
from ..numerics import matmul
from ..readable import readable
from ..tasks import Task, map_tasks, system
from .separation import check_plain


@readable
class Reading(NamedTuple):
    r"""The filter of every layer at one eigenvalue per task.

    Attributes:
        sigma: eigenvalue $\sigma$ of every task [b].
        q: filter $q(\sigma)$ of every task and layer [b, L].
        rest: part of the predictions that no filter of $K$ can have [b, L]: the norm of
            $f - q(\sigma) k(x)^T y$ over the queries, relative to the norm of $f$.
    """

    sigma: np.ndarray
    q: np.ndarray
    rest: np.ndarray


def along_eigenvector(kernel: Kernel, tasks: Task, index: int = 0) -> Task:
    r"""Replace the outputs of every task by an eigenvector of its kernel matrix.

    With $K = \sum_i \sigma_i u_i u_i^T$, the new outputs are $y = |y_0| u_i$, where $y_0$ are the
    outputs of the given task. The sign of $u_i$ is that with $u_i^T y_0 \geq 0$. A solver that
    applies a function $q$ of $K$ to $y$ then predicts $q(\sigma_i) k(x)^T y$. So one number of the
    filter explains all predictions, and `read_filter` reads it without a derivative.

    Args:
        kernel: kernel $k$ of the matrix $K$.
        tasks: batch of b tasks, y [b, n], without masks.
        index: index of the eigenvalue, 0 (default) for the largest, at most n - 1.

    Returns:
        The batch with the new outputs and without `y_query`.

    Raises:
        TypeError: `kernel` is not a kernel.
        ValueError: `index` is out of range, or `tasks` has several outputs or masks.

    >>> import icl_krr as ik
    >>> x = jnp.array([[[2.0], [0.0]]])
    >>> tasks = ik.Task(x=x, y=jnp.array([[3.0, 4.0]]), x_query=x)
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


def read_filter(kernel: Kernel, tasks: Task, answers: Float[Array, "b L q"]) -> Reading:
    r"""Read the filter of every layer from its predictions on tasks of `along_eigenvector`.

    The eigenvalue is $\sigma = y^T K y / y^T y$. With $c = k(x)^T y$, the filter is
    $q(\sigma) = \sum f c / \sum c^2$ over the queries. In contrast to `spectral_filter`, the
    predictions need not be linear in $y$. Conjugate gradient, for example, reads
    $1 / (\sigma + \lambda)$ after one step, because $y$ is an eigenvector.

    Args:
        kernel: kernel $k$ of the matrix $K$, the same as for `along_eigenvector`.
        tasks: batch of b tasks of `along_eigenvector`.
        answers: predictions of every layer [b, L, q].

    Returns:
        A `Reading`.

    Raises:
        TypeError: `kernel` is not a kernel, or `answers` is not a floating-point array.
        ValueError: `answers` does not fit `tasks` or is not finite.

    Source: Lo Gerfo et al., Spectral algorithms for supervised learning, 2008.

    >>> import icl_krr as ik
    >>> x = jnp.array([[[2.0], [0.0]]])
    >>> tasks = along_eigenvector(ik.Linear(), ik.Task(x=x, y=jnp.ones((1, 2)), x_query=x))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> found = read_filter(ik.Linear(), tasks, ik.map_tasks(solve, tasks))
    >>> found.sigma.round(4).tolist(), found.q.round(4).tolist()
    ([4.0], [[0.2]])
    """
    check_kernel(kernel)
    check_plain(tasks)
    checks.floating("answers", answers)
    checks.finite("answers", answers)
    wanted, shape = (len(tasks.x), tasks.num_queries), jnp.shape(answers)
    if len(shape) != 3 or (shape[0], shape[2]) != wanted:
        raise ValueError(
            f"answers must be [b, L, q] with b = {wanted[0]}, q = {wanted[1]} like tasks, "
            f"got shape {list(shape)}"
        )
    return Reading(*(np.asarray(part, float) for part in read(kernel, tasks, jnp.asarray(answers))))


@jax.jit
def read(kernel: Kernel, tasks: Task, answers: jax.Array) -> tuple[jax.Array, ...]:
    def of_task(part: tuple[Task, jax.Array]) -> tuple[jax.Array, ...]:
        task, f = part
        gram, cross, y = system(kernel, task)
        size = jnp.sum(y * y)
        sigma = jnp.sum(y * matmul(gram, y)) / jnp.where(size > 0, size, 1)
        c = matmul(cross, y)[:, 0]
        square = jnp.sum(c * c)
        q = jnp.sum(f * c[None], axis=1) / jnp.where(square > 0, square, 1)
        rest = jnp.linalg.norm(f - q[:, None] * c[None], axis=1)
        norm = jnp.linalg.norm(f, axis=1)
        return sigma, q, rest / jnp.where(norm > 0, norm, 1)

    return jax.lax.map(of_task, (tasks, answers))

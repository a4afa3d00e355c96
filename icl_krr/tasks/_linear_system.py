"""The linear system of one task, (K + ridge I) alpha = y, with predictions k(x)^T alpha."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks
from .._core.pytree import jit_if_concrete
from .._core.readable import readable
from ..kernels import Kernel
from ..kernels._kernel import check_kernel
from ._task import Task, check_axes


@readable
class System(NamedTuple):
    r"""The parts of the linear system $(K + \lambda I) \alpha = y$ of one task.

    A masked support has a zero row and column in $K$, a zero in every $k(x)$, and $y = 0$, so its
    $\alpha$ is 0.

    Attributes:
        gram: kernel matrix $K$ of the supports, [n, n].
        cross: kernel values $k(x)$ of every query with the supports, [q, n].
        y: outputs of the supports, [n, r], where r = 1 for a task with y [n].
    """

    gram: Float[Array, "n n"]
    cross: Float[Array, "q n"]
    y: Float[Array, "n r"]


def system(kernel: Kernel, task: Task) -> System:
    r"""Compute $K$, $k(x)$ and $y$ of one task.

    The system is $(K + \lambda I) \alpha = y$, and the predictions are $f(x) = k(x)^T \alpha$.

    >>> import numpy as np
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=np.full((1, 1), 2.0), y=[3.0], x_query=[[1.0]])
    >>> [part.tolist() for part in system(Linear(), task)]
    [[[4.0]], [[2.0]], [[3.0]]]
    """
    check_matrices(kernel, task)
    return parts(kernel, task)


def check_matrices(kernel: Kernel, task: Task) -> None:
    """Raise an error unless this is a kernel and one task whose kernel matrix fits into memory."""
    check_kernel(kernel)
    check_axes(task)
    checks.matrices(task.x, task.x)


@jit_if_concrete
def parts(kernel: Kernel, task: Task) -> System:
    x, y = task.x, task.y.reshape(task.num_supports, -1)
    if task.mask is None:
        return System(kernel(x, x), kernel(task.x_query, x), y)
    keep = task.mask
    x, y = (jnp.where(keep[:, None], value, 0) for value in (x, y))
    gram = jnp.where(keep[:, None] & keep[None, :], kernel(x, x), 0)
    return System(gram, jnp.where(keep[None, :], kernel(task.x_query, x), 0), y)

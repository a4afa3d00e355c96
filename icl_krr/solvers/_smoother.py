"""The weights of the Nadaraya-Watson estimator, and its leave-one-out error."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from .._core.messages import suggest_keywords
from .._core.numerics import matmul
from ..kernels import Kernel, PositiveKernel
from ..kernels._log_bilinear import check_positive
from ..tasks import Task
from ._algebra import check_system, like, masked_arrays


@jax.jit
def average(kernel: Kernel, task: Task, at: jax.Array) -> jax.Array:
    """The weights of all supports at points [q, p], as [q, n]; for a mixture, their mean."""
    shares, parts = zip(*kernel.parts, strict=True)
    each = [smooth(part, task, at, False) for part in parts]
    if len(each) == 1:
        return each[0]
    shares = jnp.asarray(shares, task.x.dtype)
    return jnp.tensordot(shares / jnp.sum(shares), jnp.stack(each), axes=1, precision="highest")


@suggest_keywords
def smoother_leave_one_out(kernel: Kernel, task: Task) -> jax.Array:
    r"""Return the leave-one-out error of the Nadaraya-Watson estimator at every support.

    $$e_i = y_i - \sum_{j \neq i} k(x_j, x_i) y_j / \sum_{j \neq i} k(x_j, x_i)$$

    It is 0 at masked supports, and $y_i$ if there is no other support. A `Mixture` is not accepted.

    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[1.0, 3.0], x_query=[[1.0]])
    >>> smoother_leave_one_out(Exponential(), task).tolist()
    [-2.0, 2.0]
    """
    check_system(kernel, task, ridge=1.0, matrices=2)
    check_positive(kernel)
    y = masked_arrays(task)[1]
    errors = y - matmul(smooth(kernel, task, task.x, True), y)
    if task.mask is not None:
        errors = jnp.where(task.mask[:, None], errors, 0)
    return like(task.y, errors)


@partial(jax.jit, static_argnames="hold_out")
def smooth(kernel: PositiveKernel, task: Task, at: jax.Array, hold_out: bool) -> jax.Array:
    """The weights [q, n] at the points `at` [q, p].

    With `hold_out` the points are the supports, and the weight of every support at itself is 0.
    """
    x = masked_arrays(task)[0]
    mask = jnp.ones((len(at), len(x)), bool)
    if task.mask is not None:
        mask = mask & task.mask[None]
    if hold_out:
        at, mask = x, mask & ~jnp.eye(len(x), dtype=bool)
    return jax.nn.softmax(kernel.log(at, x), axis=-1, where=mask)

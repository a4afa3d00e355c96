"""The Nadaraya-Watson estimator."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from ..fields import suggesting
from ..kernels import Kernel, PositiveKernel, check_positive
from ..numerics import matmul
from ..tasks import Task
from .algebra import check_system, like, seen
from .results import Smoothing


@suggesting
def nadaraya_watson(kernel: Kernel, task: Task) -> Smoothing:
    r"""Predict the average of the outputs of the supports, weighted by the kernel.

    $$f(x) = \sum_j k(x_j, x) y_j / \sum_j k(x_j, x)$$

    For a `Mixture` $\sum_h w_h k_h$ it is $\sum_h w_h f_h / \sum_h w_h$ with the prediction $f_h$
    of the kernel $k_h$, as parallel softmax heads compute it. The weights are normalised in the
    logarithm, so they neither overflow nor underflow at any temperature.

    Source: Nadaraya, On estimating regression, 1964; Watson, Smooth regression analysis, 1964.

    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[1.0, 3.0], x_query=[[1.0]])
    >>> nadaraya_watson(Exponential(), task).prediction.tolist()
    [2.0]
    """
    check_system(kernel, task, ridge=1.0, matrices=0)
    return average(kernel, task)


@jax.jit
def average(kernel: Kernel, task: Task) -> Smoothing:
    shares, parts = zip(*kernel.parts, strict=True)
    heads = [smooth(part, task, task.x_query, False) for part in parts]
    weights, y = heads[0]
    if len(heads) > 1:
        shares = jnp.asarray(shares, task.x.dtype)
        each = jnp.stack([own for own, _ in heads])
        weights = jnp.tensordot(shares / jnp.sum(shares), each, axes=1, precision="highest")
    return Smoothing(like(task.y, matmul(weights, y)), weights)


@suggesting
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
    weights, y = smooth(kernel, task, task.x, True)
    errors = y - matmul(weights, y)
    if task.mask is not None:
        errors = jnp.where(task.mask[:, None], errors, 0)
    return like(task.y, errors)


@partial(jax.jit, static_argnames="hold_out")
def smooth(
    kernel: PositiveKernel, task: Task, at: jax.Array, hold_out: bool
) -> tuple[jax.Array, jax.Array]:
    """The weights [q, n] at the points `at` [q, p], and y [n, r].

    With `hold_out` the points are the supports, and the weight of every support at itself is 0.
    """
    x, y = seen(task)
    counts = jnp.ones((len(at), len(x)), bool)
    if task.mask is not None:
        counts = counts & task.mask[None]
    if hold_out:
        at, counts = x, counts & ~jnp.eye(len(x), dtype=bool)
    return jax.nn.softmax(kernel.log(at, x), axis=-1, where=counts), y

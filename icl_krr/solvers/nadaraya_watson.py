"""The Nadaraya-Watson estimator."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from ..kernels import Kernel, PositiveKernel, check_positive
from ..numerics import matmul
from ..tasks import Task
from .algebra import check_system, like, seen
from .results import Smoothing


def nadaraya_watson(kernel: Kernel, task: Task) -> Smoothing:
    r"""Average the supports' y, weighed by the kernel.

    $$f(x) = \sum_j k(x_j, x) y_j / \sum_j k(x_j, x)$$

    For a `Mixture` it is the mixture of its kernels' smoothers, $\sum_h w_h f_h / \sum_h w_h$,
    which heads side by side compute. The weights are normalised in the logarithm, so no temperature
    over- or underflows. See `Smoothing` for the shapes; the dtype is the task's.

    Raises TypeError for a kernel that is not positive everywhere, such as the linear one.

    Source: Nadaraya, On estimating regression, 1964; Watson, Smooth regression analysis, 1964.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=jnp.ones((2, 1)), y=jnp.array([1.0, 3.0]), x_query=jnp.ones((1, 1)))
    >>> nadaraya_watson(Exponential(), task).prediction.tolist()
    [2.0]
    """
    check_system(kernel, task, ridge=1.0)
    shares, parts = zip(*kernel.parts, strict=True)
    heads = [smooth(part, task, task.x_query, False) for part in parts]
    weights, y = heads[0]
    if len(heads) > 1:
        shares = jnp.asarray(shares, task.x.dtype)
        each = jnp.stack([own for own, _ in heads])
        weights = jnp.tensordot(shares / jnp.sum(shares), each, axes=1, precision="highest")
    return Smoothing(like(task.y, matmul(weights, y)), weights)


def smoother_leave_one_out(kernel: Kernel, task: Task) -> jax.Array:
    r"""The error of predicting each support by Nadaraya-Watson from all the others.

    $$e_i = y_i - \sum_{j \neq i} k(x_j, x_i) y_j / \sum_{j \neq i} k(x_j, x_i)$$

    Shaped as y, in its dtype; 0 at masked supports, $y_i$ where there is no other.

    Raises TypeError for a kernel that is not positive everywhere.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Exponential, Task
    >>> task = Task(x=jnp.ones((2, 1)), y=jnp.array([1.0, 3.0]), x_query=jnp.ones((1, 1)))
    >>> smoother_leave_one_out(Exponential(), task).tolist()
    [-2.0, 2.0]
    """
    check_system(kernel, task, ridge=1.0)
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
    """Weights [q, n] at the points `at` [q, p], and y [n, r]; each support may be held out."""
    x, y = seen(task)
    counts = jnp.ones((len(at), len(x)), bool)
    if task.mask is not None:
        counts = counts & task.mask[None]
    if hold_out:
        at, counts = x, counts & ~jnp.eye(len(x), dtype=bool)
    return jax.nn.softmax(kernel.log(at, x), axis=-1, where=counts), y

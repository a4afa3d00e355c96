"""The posterior of a Gaussian process, by a model that solves its linear systems."""

from __future__ import annotations

import jax.numpy as jnp

from .kernels import Kernel, check_kernel
from .solvers.results import Posterior
from .tasks import Task
from .tasks.task import check_axes
from .transformer import Transformer, predict


def posterior(model: Transformer, kernel: Kernel, task: Task) -> Posterior:
    r"""Mean $k(x)^T A^{-1} y$ and variance $k(x, x) - k(x)^T A^{-1} k(x)$, $A = K + \lambda I$.

    The same stack gives both: $k(x)$ of each of the q queries is one more right-hand side beside
    $y$, that is one more output of the task, and the variance lacks what the model predicts for
    it. `model` has one output and solves $A$ on `kernel`, its ridge $\lambda$ being the variance of
    the noise; a model that has not converged gives a variance that is too large. In the task's
    dtype; jit, vmap and differentiate it as `predict`.

    Raises ValueError for a model of more than one output, and as `predict` does.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.25, 2.26.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> mean, variance = posterior(model, ik.Linear(), task)
    >>> round(float(mean[0]), 4), round(float(variance[0]), 4)
    (1.0, 0.6667)
    """
    check_kernel(kernel)
    check_axes(task)
    if model.spec.num_outputs != 1:
        raise ValueError(
            "model must have one output, so that it takes any number of them, got "
            f"num_outputs = {model.spec.num_outputs}; build it with num_outputs=1"
        )
    y = task.y.reshape(task.num_supports, -1)
    cross = kernel(task.x, task.x_query)
    if task.mask is not None:
        cross = jnp.where(task.mask[:, None], cross, 0)
    every = predict(model, task.replace(y=jnp.concatenate([y, cross], axis=1), y_query=None))
    mean, explained = every[:, : y.shape[1]], jnp.diagonal(every[:, y.shape[1] :])
    variance = kernel.diagonal(task.x_query) - explained
    return Posterior(mean[:, 0] if task.y.ndim == 1 else mean, variance)

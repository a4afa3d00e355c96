"""The posterior of a Gaussian process, computed by a model that solves linear systems."""

from __future__ import annotations

import jax.numpy as jnp

from .kernels import Kernel, check_kernel
from .solvers.results import Posterior
from .tasks import Task
from .tasks.task import check_axes
from .transformer import Transformer, predict
from .transformer.weights import check_model


def posterior(model: Transformer, kernel: Kernel, task: Task) -> Posterior:
    r"""Compute the posterior mean and variance of a Gaussian process at the queries.

    $$\mu(x) = k(x)^T A^{-1} y, \quad v(x) = k(x, x) - k(x)^T A^{-1} k(x), \quad
    A = K + \lambda I$$

    Here $K$ is the kernel matrix of the supports, and the vector $k(x)$ contains the kernel values
    of $x$ with the supports. The model solves one linear system for $y$ and one for the vector
    $k(x)$ of each query. The function passes these vectors to the model as q additional outputs of
    the task. At query $x$, the model predicts $k(x)^T A^{-1} k(x)$ for the output $k(x)$, and the
    function subtracts this prediction from $k(x, x)$. A conjugate gradient model that has not
    converged gives a variance that is too large. You can jit, vmap and differentiate this function
    like `predict`.

    Args:
        model: transformer with one output that solves $A \alpha = y$ for `kernel`. Its ridge
            $\lambda$ is the variance of the noise.
        kernel: kernel $k$ of the model, which is also the covariance of the process.
        task: one task; x [n, p], y [n] or [n, r], x_query [q, p].

    Returns:
        A `Posterior` with mean [q] or [q, r] and variance [q] of the function without noise, in the
        dtype of the task.

    Raises:
        TypeError: `kernel` or `task` has the wrong type, or the dtype of the task is wider than the
            dtype of the weights.
        ValueError: the model has more than one output, or the task does not fit the model.
        MemoryError: the device has too little memory for the run (see `memory`).

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.25, 2.26.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> mean, variance = posterior(model, ik.Linear(), task)
    >>> round(float(mean[0]), 4), round(float(variance[0]), 4)
    (1.0, 0.6667)
    """
    check_model(model)
    check_kernel(kernel)
    check_axes(task)
    if model.spec.num_outputs != 1:
        raise ValueError(
            f"model must have one output, got num_outputs = {model.spec.num_outputs}; "
            "build it with num_outputs=1"
        )
    y = task.y.reshape(task.num_supports, -1)
    cross = kernel(task.x, task.x_query)
    if task.mask is not None:
        cross = jnp.where(task.mask[:, None], cross, 0)
    every = predict(model, task.replace(y=jnp.concatenate([y, cross], axis=1), y_query=None))
    mean, explained = every[:, : y.shape[1]], jnp.diagonal(every[:, y.shape[1] :])
    variance = kernel.diagonal(task.x_query) - explained
    return Posterior(mean[:, 0] if task.y.ndim == 1 else mean, variance)

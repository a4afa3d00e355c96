"""Marginal likelihood of a Gaussian process whose noise variance is the ridge."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import Kernel
from .._core import checks, linalg
from .._core.rescaling import power_of_two_scale, rescaled
from ..tasks import Task, system
from ..tasks._task import support_mask
from ._algebra import check_system


@checks.suggest_keywords
def log_marginal_likelihood(kernel: Kernel, task: Task, *, ridge: float | Array) -> Array:
    r"""Return the log marginal likelihood $\log p(y | x)$ of a Gaussian process, by Cholesky.

    $$\log p(y | x) = -(y^T \alpha + \log \det A + n \log 2\pi) / 2$$

    Here n counts the supports that are not masked. Several outputs are independent draws, so their
    log likelihoods are added. `icl_krr.audit` says how far it is off.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.30 and 5.9.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[0.0]], y=[0.0], x_query=[[1.0]])
    >>> round(float(log_marginal_likelihood(Linear(), task, ridge=1.0)), 4)
    -0.9189
    """
    check_system(kernel, task, ridge, matrices=2)
    checks.factorable("x", task.x)
    return evidence(kernel, task, ridge)


@jax.jit
def evidence(kernel: Kernel, task: Task, ridge: jax.Array) -> jax.Array:
    y, A = system(kernel, task).y, covariance(kernel, task, ridge)

    def quadratic_form(y, A):
        return jnp.sum(y * linalg.solve(A, y), axis=0)

    fit = jnp.sum(rescaled(power_of_two_scale(y, axis=0), quadratic_form, 2, y, A))
    return -(fit + complexity(kernel, task, ridge)) / 2


def complexity(kernel: Kernel, task: Task, ridge: float | Float[Array, ""]) -> Float[Array, ""]:
    """Return (log det A + n log 2 pi) times the number of outputs."""
    size = linalg.log_determinant(covariance(kernel, task, ridge))
    return task.num_outputs * (size + num_unmasked(task) * math.log(2 * math.pi))


def num_unmasked(task: Task) -> jax.Array:
    """Count the supports that are not masked, in the dtype of the task."""
    return jnp.sum(support_mask(task), dtype=task.x.dtype)


def covariance(kernel: Kernel, task: Task, ridge: float | Float[Array, ""]) -> jax.Array:
    """Return A with diagonal entry 1 at a masked support, which adds 0 to log det A."""
    gram, _, y = system(kernel, task)
    diagonal = jnp.broadcast_to(jnp.asarray(ridge, y.dtype), (task.num_supports,))
    if task.mask is not None:
        diagonal = jnp.where(task.mask, diagonal, 1)
    return gram + jnp.diag(diagonal)

"""Exact kernel ridge regression by Cholesky factorisation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import Kernel
from .._core import checks, linalg
from .._core.numerics import matmul
from .._core.rescaling import power_of_two_scale, rescaled, times_power
from .._core.status_warning import warn_unless_ok
from ..tasks import Task, system
from . import _accuracy
from ._algebra import check_system, like
from ._results import Posterior, Solution


@checks.suggest_keywords
def exact(kernel: Kernel, task: Task, *, ridge: float | Float[Array, ""]) -> Solution:
    r"""Solve $(K + \lambda I) \alpha = y$ and predict $k(x)^T \alpha$ at the queries.

    No jitter is added to the diagonal; `status` says how accurate the predictions of an
    ill-conditioned system are. Each output of y is divided by a power of two, also for derivatives,
    so that very large or small y neither overflow nor underflow.

    Source: Saunders, Gammerman, Vovk, Ridge regression learning algorithm in dual variables, ICML
    1998.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> exact(Linear(), task, ridge=2.0).prediction.round(6).tolist()
    [1.0]
    """
    check_system(kernel, task, ridge, matrices=3)
    checks.factorable("x", task.x)
    return warn_unless_ok(_solve(kernel, task, ridge))


@jax.jit
def _solve(kernel: Kernel, task: Task, ridge: jax.Array) -> Solution:
    parts = system(kernel, task)
    ridge = jnp.asarray(ridge, parts.y.dtype)
    y, unit = parts.y, power_of_two_scale(parts.y, axis=0)
    A = shifted(parts.gram, ridge)
    lower, solution = linalg.factor_and_solution(A, times_power(y, unit, -1))
    alpha, prediction = rescaled(unit, _alpha_and_mean, 1, y, A, lower, solution, parts.cross)
    status = _accuracy.solution_status(kernel, task, parts, ridge, alpha, lower)
    return Solution(like(task.y, alpha), like(task.y, prediction), status)


def _alpha_and_mean(y: Any, A: Any, lower: Any, solution: Any, cross: Any) -> Any:
    """A^-1 y, which was found, and k(x)^T A^-1 y at the queries."""
    alpha = linalg.solution(A, y, lower, solution)
    return alpha, matmul(cross, alpha)


@checks.suggest_keywords
def posterior(kernel: Kernel, task: Task, *, ridge: float | Float[Array, ""]) -> Posterior:
    r"""Return mean and variance of a Gaussian process at the queries, given the supports.

    $$f^\ast(x) = k(x)^T A^{-1} y, \quad v(x) = k(x, x) - k(x)^T A^{-1} k(x)$$

    The variance does not include the noise of an observation.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, algorithm 2.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> posterior(Linear(), task, ridge=1.0).variance.round(6).tolist()
    [0.5]
    """
    check_system(kernel, task, ridge, matrices=3)
    checks.factorable("x", task.x)
    return warn_unless_ok(condition(kernel, task, ridge))


@jax.jit
def condition(kernel: Kernel, task: Task, ridge: jax.Array) -> Posterior:
    parts = system(kernel, task)
    ridge = jnp.asarray(ridge, parts.y.dtype)
    y, unit, r = parts.y, power_of_two_scale(parts.y, axis=0), parts.y.shape[1]
    A, cross = shifted(parts.gram, ridge), parts.cross
    right = jnp.concatenate([times_power(y, unit, -1), cross.T], axis=1)
    lower, solution = linalg.factor_and_solution(A, right)
    alpha, mean = rescaled(unit, _alpha_and_mean, 1, y, A, lower, solution[:, :r], cross)
    weights = linalg.solution(A, cross.T, lower, solution[:, r:])
    prior = kernel.diagonal(task.x_query)
    variance = prior - jnp.sum(cross.T * weights, axis=0)
    error = jnp.diagonal(_accuracy.rounding_errors(kernel, task, parts, ridge, weights, lower))
    status = _accuracy.solution_status(kernel, task, parts, ridge, alpha, lower)
    status = _accuracy.with_variance(status, error, variance, prior)
    return Posterior(like(task.y, mean), variance, status)


@checks.suggest_keywords
def leave_one_out(kernel: Kernel, task: Task, *, ridge: float | Float[Array, ""]) -> jax.Array:
    r"""Return the leave-one-out error of every support, without refitting.

    $$e_i = y_i - f_{-i}(x_i) = \alpha_i / (A^{-1})_{ii}$$

    It is 0 at masked supports. `icl_krr.audit` says how far rounding moved it.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 5.12.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[3.0, 0.0], x_query=[[1.0]])
    >>> leave_one_out(Linear(), task, ridge=2.0).round(4).tolist()
    [3.0, -1.0]
    """
    check_system(kernel, task, ridge, matrices=3)
    checks.factorable("x", task.x)
    return _leave_one_out_errors(kernel, task, ridge)


@jax.jit
def _leave_one_out_errors(kernel: Kernel, task: Task, ridge: jax.Array) -> jax.Array:
    gram, _, y = system(kernel, task)
    A = shifted(gram, jnp.asarray(ridge, y.dtype))

    def run(y: Any, A: Any) -> jax.Array:
        return linalg.solve(A, y) / linalg.diagonal_of_inverse(A)[:, None]

    return like(task.y, rescaled(power_of_two_scale(y, axis=0), run, 1, y, A))


@jax.jit
def shifted(gram: jax.Array, ridge: jax.Array) -> jax.Array:
    return gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)

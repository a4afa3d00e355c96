"""GD++: gradient descent on features that a preconditioner changes at every step."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task
from ..units import in_units, unit_of
from .algebra import check_system, featured, like, seen
from .paths import after
from .results import Trajectory


@checks.suggesting
def gradient_descent_plus_plus(
    kernel: Kernel,
    task: Task,
    *,
    steps: int,
    step_size: float | Float[Array, ""],
    curvature: float | Float[Array, ""],
) -> Trajectory:
    r"""Minimise the squared error by GD++: gradient descent with a transformation of the features.

    $$r_{t+1} = r_t - \eta X_t X_t^T r_t, \quad f_{t+1}(x) = f_t(x) + \eta x_t^T X_t^T r_t, \quad
    X_{t+1} = X_t (I - c X_t^T X_t)$$

    Every step multiplies the features of the supports and of the queries by the same matrix
    $I - c X_t^T X_t$. There is no ridge, as early stopping regularises the solution, and no alpha;
    `r` is $y - f_t$ at the supports.

    Args:
        step_size: step size $\eta$ > 0 of gradient descent.
        curvature: step size $c$ >= 0 of the transformation of the features; 0 is plain gradient
            descent.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[4.0], x_query=[[1.0]])
    >>> path = gradient_descent_plus_plus(Linear(), task, steps=2, step_size=0.5, curvature=0.5)
    >>> path.prediction[:, 0].tolist()
    [0.0, 2.0, 2.25]
    """
    check_system(kernel, task, 1.0, steps, matrices=0)
    task = featured(kernel, task)
    checks.positive_scalar("step_size", step_size)
    checks.nonnegative_scalar("curvature", curvature)
    return descend(task, step_size, curvature, steps)


@partial(jax.jit, static_argnames="steps")
def descend(task, step_size, curvature, steps) -> Trajectory:
    x, y = seen(task)
    eta, curvature = (jnp.asarray(value, y.dtype) for value in (step_size, curvature))
    run = partial(iterate, steps)
    r, f = in_units(unit_of(y, axis=0), run, 1, y, x, task.x_query, eta, curvature)
    return Trajectory(None, like(task.y, r), None, like(task.y, f))


def iterate(steps, y, x, x_query, eta, curvature):
    def step(state, _):
        x, queries, r, f = state
        fall, spread = eta * matmul(x.T, r), curvature * matmul(x.T, x)
        state = (
            x - matmul(x, spread),
            queries - matmul(queries, spread),
            r - matmul(x, fall),
            f + matmul(queries, fall),
        )
        return state, state[2:]

    zero = jnp.zeros((len(x_query), y.shape[1]), y.dtype)
    _, path = jax.lax.scan(step, (x, x_query, y, zero), length=steps)
    return after((y, zero), path)

"""Gradient descent in the function space of the kernel, and in alpha."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import step_sizes
from ..fields import suggesting
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task
from .algebra import apply, check_system
from .paths import after, trajectory
from .results import Trajectory


@suggesting
def gradient_descent(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Solve kernel ridge regression by functional gradient descent from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) r_t$$

    Args:
        step_size: step size $\eta$ > 0; default: $2 / (a + b)$. Pass either this or `spectrum`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent(Linear(), task, ridge=1.0, steps=2, step_size=0.25)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.gradient_step(step_size, spectrum)
    return trajectory(kernel, task, ridge, iterate, (steps, False), eta, spectrum=True)


@suggesting
def gradient_descent_in_alpha(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Solve kernel ridge regression by gradient descent in alpha from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta K r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) K r_t$$

    It follows the Euclidean gradient of $|y - K \alpha|^2 / 2 + \lambda \alpha^T K \alpha / 2$,
    which has one more factor $K$ than that of `gradient_descent`, so the condition number is about
    squared.

    Args:
        step_size: step size $\eta$ > 0; default: $2 / (a (a - \lambda) + b (b - \lambda))$, or half
            of this if $a = \lambda$. If $b = \lambda$ up to rounding, it is finite, and the
            predictions stay near 0. Pass either this or `spectrum`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent_in_alpha(Linear(), task, ridge=4.0, steps=2, step_size=1 / 64)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.1875, 0.28125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    how = (steps, True)
    return trajectory(kernel, task, ridge, iterate, how, eta, spectrum=True, stuck=True)


def iterate(steps, in_alpha, gram, ridge, y, eta):
    def step(state, _):
        alpha, r = state
        ascent = matmul(gram, r) if in_alpha else r
        state = alpha + eta * ascent, r - eta * apply(gram, ridge, ascent)
        return state, state

    start = jnp.zeros_like(y), y
    _, path = jax.lax.scan(step, start, length=steps)
    return *after(start, path), None

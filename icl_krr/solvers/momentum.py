"""Heavy ball and Chebyshev: methods with momentum and without inner products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import step_sizes
from ..fields import suggesting
from ..kernels import Kernel
from ..tasks import Task
from .algebra import apply, check_system
from .paths import after, trajectory
from .results import Trajectory


@suggesting
def heavy_ball(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    momentum: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by the heavy-ball method of Polyak.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu p_t + \eta r_{t+1}$$

    The iteration starts from $\alpha_0 = 0$ and $p_0 = \eta y$. Pass either `step_size` and
    `momentum`, or `spectrum` alone.

    Args:
        step_size: step size $\eta$ > 0; default: $4 / (\sqrt{b} + \sqrt{a})^2$.
        momentum: momentum $\mu$ >= 0; default: $((\sqrt{b} - \sqrt{a}) / (\sqrt{b} + \sqrt{a}))^2$.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = heavy_ball(Linear(), task, ridge=1.0, steps=2, step_size=0.25, momentum=0.5)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.5]
    """
    check_system(kernel, task, ridge, steps)
    numbers = step_sizes.heavy_ball(steps, step_size, momentum, spectrum)
    return trajectory(kernel, task, ridge, iterate, (), numbers, spectrum=True)


@suggesting
def chebyshev(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by the Chebyshev iteration.

    The iteration is that of `heavy_ball` with a $\mu_t$ and an $\eta_t$ for each step, the optimal
    choice if only the bounds $(a, b)$ on the spectrum are known. The error falls as
    $2 ((\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1))^t$ with $\kappa = b / a$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(2.0, 2.0))
    >>> path.alpha[:, 0].tolist()
    [0.0, 1.5]
    """
    check_system(kernel, task, ridge, steps)
    numbers = step_sizes.chebyshev(steps, spectrum)
    return trajectory(kernel, task, ridge, iterate, (), numbers, spectrum=True)


def iterate(gram, ridge, y, momentum):
    def step(state, coefficients):
        (alpha, r, p), (a, b) = state, coefficients
        alpha, r = alpha + p, r - apply(gram, ridge, p)
        state = alpha, r, a * p + b * r
        return state, state

    start = jnp.zeros_like(y), y, momentum.first * y
    _, path = jax.lax.scan(step, start, (momentum.a, momentum.b))
    return after(start, path)

"""Heavy ball and Chebyshev: a direction remembered from step to step, and no sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import step_sizes
from ..kernels import Kernel
from ..numerics import matmul
from ..step_sizes import Momentum
from ..tasks import Task, system
from .algebra import apply, check_system, like
from .results import Trajectory


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
    r"""Polyak's method on $A \alpha = y$, $A = K + \lambda I$: gradient descent with momentum.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu p_t + \eta r_{t+1}$$

    from $\alpha_0 = 0$, $p_0 = \eta y$. Either `step_size` $\eta > 0$ and `momentum` $\mu \geq 0$,
    or `spectrum` = (low, high) = $(a, b)$, bounds on the eigenvalues of $A$
    (`icl_krr.spectral_bounds` has them), from which $\eta = 4 / (\sqrt{b} + \sqrt{a})^2$ and
    $\mu = ((\sqrt{b} - \sqrt{a}) / (\sqrt{b} + \sqrt{a}))^2$. See `Trajectory` for the shapes; the
    dtype is the task's.

    Raises ValueError for missing or surplus arguments and numbers out of range.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> path = heavy_ball(Linear(), task, ridge=1.0, steps=2, step_size=0.25, momentum=0.5)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.5]
    """
    check_system(kernel, task, ridge, steps)
    return follow(kernel, task, ridge, step_sizes.heavy_ball(steps, step_size, momentum, spectrum))


def chebyshev(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""The Chebyshev iteration: the best polynomial for a spectrum in $[a, b]$, no sums.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu_t p_t + \eta_t r_{t+1}$$

    from $\alpha_0 = 0$, for `spectrum` = (low, high) = $(a, b)$, bounds on the eigenvalues of
    $A = K + \lambda I$ (`icl_krr.spectral_bounds`). The error falls as
    $2 ((\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1))^t$, $\kappa = b / a$. See `Trajectory` for the
    shapes; the dtype is the task's.

    Raises ValueError without a spectrum and for numbers out of range.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> path = chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(2.0, 2.0))
    >>> path.alpha[:, 0].tolist()
    [0.0, 1.5]
    """
    check_system(kernel, task, ridge, steps)
    return follow(kernel, task, ridge, step_sizes.chebyshev(steps, spectrum))


@jax.jit
def follow(kernel: Kernel, task: Task, ridge: jax.Array, momentum: Momentum) -> Trajectory:
    gram, cross, y = system(kernel, task)
    ridge, momentum = jax.tree.map(lambda value: jnp.asarray(value, y.dtype), (ridge, momentum))

    def step(state, coefficients):
        (alpha, r, p), (a, b) = state, coefficients
        alpha, r = alpha + p, r - apply(gram, ridge, p)
        state = alpha, r, a * p + b * r
        return state, state

    start = jnp.zeros_like(y), y, momentum.first * y
    _, path = jax.lax.scan(step, start, (momentum.a, momentum.b))
    alpha, r, p = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest]), start, path
    )
    return Trajectory(
        like(task.y, alpha), like(task.y, r), like(task.y, p), like(task.y, matmul(cross, alpha))
    )

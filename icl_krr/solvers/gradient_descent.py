"""Gradient descent in the function space of the kernel, and in alpha."""

from __future__ import annotations

from functools import partial

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

    Pass either `step_size` or `spectrum`. With `spectrum` the step size is $\eta = 2 / (a + b)$.

    Args:
        kernel, task, ridge, steps: as in `icl_krr.solvers`, which also says what is raised.
        step_size: step size $\eta$ > 0; default: computed from `spectrum`.
        spectrum: bounds (low, high) = $(a, b)$ on the eigenvalues of $K + \lambda I$, as
            `icl_krr.spectral_bounds` returns them; default: `step_size` is used.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent(Linear(), task, ridge=1.0, steps=2, step_size=0.25)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.gradient_step(step_size, spectrum)
    return descend(kernel, task, ridge, eta, steps, False)


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

    The steps follow the Euclidean gradient of
    $|y - K \alpha|^2 / 2 + \lambda \alpha^T K \alpha / 2$. This gradient has one more factor $K$
    than that of `gradient_descent`, so the condition number is about squared. Pass either
    `step_size` or `spectrum`. With `spectrum` the step size is
    $\eta = 2 / (a (a - \lambda) + b (b - \lambda))$, or half of this if $a = \lambda$.
    If $b = \lambda$ up to rounding, $K$ is too small to be known from the spectrum. The step size
    is then finite, and the predictions stay near 0.

    Args:
        step_size, spectrum: as in `gradient_descent`.
        kernel, task, ridge, steps: as in `icl_krr.solvers`, which also says what is raised.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0]], y=[3.0], x_query=[[1.0]])
    >>> path = gradient_descent_in_alpha(Linear(), task, ridge=4.0, steps=2, step_size=1 / 64)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.1875, 0.28125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    return descend(kernel, task, ridge, eta, steps, True)


@partial(jax.jit, static_argnames=("steps", "in_alpha"))
def descend(kernel, task, ridge, eta, steps, in_alpha) -> Trajectory:
    eta = jnp.asarray(eta, task.y.dtype)
    run, about = partial(iterate, steps, in_alpha), {"spectrum": True, "stuck": in_alpha}
    return trajectory(kernel, task, ridge, run, eta, **about)


def iterate(steps, in_alpha, gram, ridge, y, eta):
    def step(state, _):
        alpha, r = state
        ascent = matmul(gram, r) if in_alpha else r
        state = alpha + eta * ascent, r - eta * apply(gram, ridge, ascent)
        return state, state

    start = jnp.zeros_like(y), y
    _, path = jax.lax.scan(step, start, length=steps)
    return *after(start, path), None

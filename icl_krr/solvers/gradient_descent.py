"""Gradient descent in the function space of the kernel, and in alpha."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import step_sizes
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task, system
from .algebra import apply, check_system, like
from .results import Trajectory


def gradient_descent(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Follow the functional gradient from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) r_t$$

    $\eta$ is `step_size` > 0, or $2 / (a + b)$ for `spectrum` = (low, high) = $(a, b)$, bounds on
    the eigenvalues of $K + \lambda I$ (`icl_krr.spectral_bounds` has them); one of the two is
    needed. See `Trajectory` for the shapes; the dtype is the task's.

    Raises ValueError if neither or both are given, or a number is out of its range.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> path = gradient_descent(Linear(), task, ridge=1.0, steps=2, step_size=0.25)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.75, 1.125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.gradient_step(step_size, spectrum)
    return descend(kernel, task, ridge, eta, steps, False)


def gradient_descent_in_alpha(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Follow the Euclidean gradient from $\alpha_0 = 0$, $r_0 = y$.

    $$\alpha_{t+1} = \alpha_t + \eta K r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) K r_t$$

    That of $|y - K \alpha|^2 / 2 + \lambda \alpha^T K \alpha / 2$: one $K$ more than
    `gradient_descent`, and the square of its condition number. $\eta$ is `step_size` > 0, or for
    `spectrum` = (low, high) = $(a, b)$, bounds on the eigenvalues of $K + \lambda I$, it is
    $2 / (a (a - \lambda) + b (b - \lambda))$, or half that where $a = \lambda$. See
    `Trajectory` for the shapes; the dtype is the task's.

    Raises ValueError if neither or both are given, or a number is out of its range.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.full((1, 1), 2.0), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> path = gradient_descent_in_alpha(Linear(), task, ridge=4.0, steps=2, step_size=1 / 64)
    >>> path.alpha[:, 0].tolist()
    [0.0, 0.1875, 0.28125]
    """
    check_system(kernel, task, ridge, steps)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    return descend(kernel, task, ridge, eta, steps, True)


@partial(jax.jit, static_argnames=("steps", "in_alpha"))
def descend(kernel, task, ridge, eta, steps, in_alpha) -> Trajectory:
    gram, cross, y = system(kernel, task)
    ridge, eta = (jnp.asarray(value, y.dtype) for value in (ridge, eta))

    def step(state, _):
        alpha, r = state
        ascent = matmul(gram, r) if in_alpha else r
        state = alpha + eta * ascent, r - eta * apply(gram, ridge, ascent)
        return state, state

    start = jnp.zeros_like(y), y
    _, path = jax.lax.scan(step, start, length=steps)
    alpha, r = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, path)
    return Trajectory(
        like(task.y, alpha), like(task.y, r), None, like(task.y, matmul(cross, alpha))
    )

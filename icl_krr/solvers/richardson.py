"""Richardson's iteration, preconditioned by the normaliser of the kernel."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_positive
from ..step_sizes import richardson_step
from ..tasks import Task
from .algebra import apply, check_system
from .paths import trajectory
from .results import Trajectory


def richardson(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] = 1.0,
    sink: float | Float[Array, ""] | None = None,
) -> Trajectory:
    r"""Solve $A \alpha = y$ by Richardson's iteration, preconditioned by the kernel's normaliser.

    $$\alpha_{t+1} = \alpha_t + \eta (D + cI)^{-1} (y - A \alpha_t), \quad A = K + \lambda I$$

    $D$ is the diagonal matrix of the row sums $s_i$ of $K$. If $\lambda \leq c$, every eigenvalue
    of $(D + cI)^{-1} A$ lies in $(0, 1]$: the matrix is similar to a symmetric positive definite
    one, and its row sums $(s_i + \lambda) / (s_i + c)$ are <= 1. So the iteration converges for
    every $\eta$ in $(0, 2)$ and every n.

    Args:
        task, ridge, steps: as in `icl_krr.solvers`, which also says what is raised.
        kernel: positive kernel $k$, such as `Exponential` or `Gaussian`.
        step_size: step size $\eta$ in (0, 2), 1 by default.
        sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum; default: the
            ridge.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> richardson(Gaussian(), task, ridge=1.0, steps=2).alpha[:, 0].tolist()
    [0.0, 1.5, 1.5]
    """
    check_system(kernel, task, ridge, steps)
    check_positive(kernel)
    if sink is not None:
        checks.positive_scalar("sink", sink)
    c = ridge if sink is None else sink
    return solve(kernel, task, ridge, richardson_step(step_size), c, steps)


@partial(jax.jit, static_argnames="steps")
def solve(kernel, task, ridge, eta, sink, steps) -> Trajectory:
    eta, sink = (jnp.asarray(value, task.y.dtype) for value in (eta, sink))
    return trajectory(kernel, task, ridge, partial(iterate, steps), eta, sink)


def iterate(steps, gram, ridge, y, eta, sink):
    scale = eta / (jnp.sum(gram, axis=1, keepdims=True) + sink)

    def step(alpha, _):
        alpha = alpha + scale * (y - apply(gram, ridge, alpha))
        return alpha, alpha

    start = jnp.zeros_like(y)
    _, path = jax.lax.scan(step, start, length=steps)
    alpha = jnp.concatenate([start[None], path])
    r = y[None] - apply(gram, ridge, alpha)
    return alpha, r, None

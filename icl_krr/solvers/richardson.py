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
        kernel: positive kernel $k$, such as `Exponential` or `Gaussian`.
        task: supports, outputs and queries; x [n, p], y [n] or [n, r], x_query [q, p].
        ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.
        steps: number of steps, >= 1.
        step_size: step size $\eta$ in (0, 2), 1 by default.
        sink: weight $c$ > 0 of the attention sink, which adds $c$ to every row sum; default: the
            ridge.

    Returns:
        A `Trajectory` with one entry for each iterate from 0 to `steps`, in the dtype of the task.
        `p` is None.

    Raises:
        ValueError: a number is out of range, or `task` is a batch.
        TypeError: `kernel` is not a positive kernel; a `Mixture` is not accepted.
        MemoryError: the matrices and the stored steps do not fit into memory.

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

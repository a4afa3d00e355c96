"""Conjugate gradient with a Jacobi or a Nystrom preconditioner, or the normaliser."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_positive
from ..numerics import matmul, reciprocal
from ..sketches import Nystrom
from ..tasks import Task
from ..tasks.task import kept
from .algebra import apply, check_system, seen
from .conjugate_gradient import dot
from .paths import after, trajectory
from .results import Trajectory


@checks.suggesting
def preconditioned_conjugate_gradient(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    preconditioner: str | Nystrom = "jacobi",
) -> Trajectory:
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by conjugate gradient with preconditioner $M$.

    $$\gamma_t = r_t^T z_t / p_t^T A p_t, \quad \alpha_{t+1} = \alpha_t + \gamma_t p_t, \quad
    r_{t+1} = r_t - \gamma_t A p_t,$$
    $$z_{t+1} = M^{-1} r_{t+1}, \quad \beta_t = r_{t+1}^T z_{t+1} / r_t^T z_t, \quad
    p_{t+1} = z_{t+1} + \beta_t p_t$$

    A quotient whose divisor underflows is 0, as in `conjugate_gradient`.

    Args:
        preconditioner: "jacobi" (default) uses the diagonal of $A$ as $M$, and "normaliser" uses
            $M = D + \lambda I$ with the row sums $D$ of a positive kernel. An `icl_krr.Nystrom` of
            the same kernel and ridge uses $M = F F^T + \lambda I$ with its features $F$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 9.1.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0, 0.0], [0.0, 2.0]], y=[8.0, 4.0], x_query=[[1.0, 1.0]])
    >>> path = preconditioned_conjugate_gradient(Linear(), task, ridge=4.0, steps=1)
    >>> path.alpha.tolist()
    [[0.0, 0.0], [1.0, 0.5]]
    """
    check_system(kernel, task, ridge, steps)
    if isinstance(preconditioner, Nystrom):
        preconditioner.check(kernel, ridge)
        return solve(kernel, task, ridge, preconditioner, steps)
    checks.choice("preconditioner", preconditioner, ("jacobi", "normaliser"))
    if preconditioner == "normaliser":
        check_positive(kernel)
    return trajectory(kernel, task, ridge, iterate, (steps, preconditioner))


@partial(jax.jit, static_argnames="steps")
def solve(kernel, task, ridge, nystrom, steps) -> Trajectory:
    features = jnp.where(kept(task)[:, None], nystrom.features(seen(task)[0]), 0)
    return trajectory(kernel, task, ridge, iterate, (steps, ""), features, nystrom.core)


def iterate(steps, diagonal, gram, ridge, y, *nystrom):
    entries = jnp.sum(gram, axis=1) if diagonal == "normaliser" else jnp.diagonal(gram)

    def solve(r):
        if not nystrom:
            return r / (entries[:, None] + ridge)
        features, core = nystrom
        return (r - matmul(features, matmul(core, matmul(features.T, r)))) / ridge

    def step(state, _):
        alpha, r, p, rz = state
        Ap = apply(gram, ridge, p)
        gamma = rz * reciprocal(dot(p, Ap))
        r = r - gamma * Ap
        z = solve(r)
        rz_next = dot(r, z)
        state = alpha + gamma * p, r, z + rz_next * reciprocal(rz) * p, rz_next
        return state, state[:3]

    z = solve(y)
    start = jnp.zeros_like(y), y, z, dot(y, z)
    _, path = jax.lax.scan(step, start, length=steps)
    return after(start[:3], path)

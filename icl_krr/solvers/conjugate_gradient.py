"""Conjugate gradient, with separate step sizes for each output."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..numerics import reciprocal
from ..tasks import Task
from .algebra import apply, check_system
from .paths import after, trajectory
from .results import Trajectory


@checks.suggesting
def conjugate_gradient(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    form: str = "textbook",
) -> Trajectory:
    r"""Solve $A \alpha = y$ with $A = K + \lambda I$ by conjugate gradient from $\alpha_0 = 0$.

    $$\gamma_t = |r_t|^2 / p_t^T A p_t, \quad \alpha_{t+1} = \alpha_t + \gamma_t p_t, \quad
    r_{t+1} = r_t - \gamma_t A p_t,$$
    $$\beta_t = |r_{t+1}|^2 / |r_t|^2, \quad p_{t+1} = r_{t+1} + \beta_t p_t$$

    Each output has its own $\gamma_t$ and $\beta_t$. A quotient whose divisor underflows is 0, so
    all values and gradients stay finite after convergence. If $r$ becomes 0 before the last step,
    later steps contribute no derivative: the Jacobian with respect to y is 0 at y = 0, and if y is
    a sum of fewer eigenvectors of $K$ than there are steps, it is that of exact regression in their
    directions. For other y, rounding keeps $r$ from 0.

    Args:
        form: order of the operations. "textbook" (default) is the recurrence above. "fused"
            computes all inner products in one parallel operation, with $\gamma = r^T p / p^T A p$
            and $\beta = (\gamma |A p|^2 - r^T A p) / p^T A p$. "pipelined" also updates
            $A p_{t+1} = A r_t - \gamma_t A A p_t + \beta_t A p_t$, so that inner products and
            products with $A$ run in parallel.

    Source: Hestenes, Stiefel, Methods of conjugate gradients for solving linear systems, 1952;
    Chronopoulos, Gear, s-step iterative methods for symmetric linear systems, 1989; Ghysels,
    Vanroose, Hiding global synchronization latency in the preconditioned conjugate gradient
    algorithm, 2014.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> conjugate_gradient(Linear(), task, ridge=2.0, steps=1).prediction[:, 0].tolist()
    [0.0, 1.0]
    """
    check_system(kernel, task, ridge, steps)
    checks.choice("form", form, tuple(FORMS))
    return trajectory(kernel, task, ridge, iterate, (steps, form))


def iterate(steps, form, gram, ridge, y):
    A = partial(apply, gram, ridge)

    def step(state, _):
        state = FORMS[form](A, *state)
        return state, state[:3]

    start = jnp.zeros_like(y), y, y, A(y)
    _, path = jax.lax.scan(step, start, length=steps)
    return after(start[:3], path)


def textbook(A, alpha, r, p, s):
    Ap = A(p)
    gamma = dot(r, r) * reciprocal(dot(p, Ap))
    r_next = r - gamma * Ap
    beta = dot(r_next, r_next) * reciprocal(dot(r, r))
    return alpha + gamma * p, r_next, r_next + beta * p, s


def fused(A, alpha, r, p, s):
    Ap = A(p)
    gamma, beta = quotients(r, p, Ap)
    r_next = r - gamma * Ap
    return alpha + gamma * p, r_next, r_next + beta * p, s


def pipelined(A, alpha, r, p, s):
    gamma, beta = quotients(r, p, s)
    r_next = r - gamma * s
    return alpha + gamma * p, r_next, r_next + beta * p, A(r) - gamma * A(s) + beta * A(p)


FORMS = {"textbook": textbook, "fused": fused, "pipelined": pipelined}


def quotients(r: jax.Array, p: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute gamma = r.p / p.s and beta = -r'.s / p.s from r, p and s = Ap, with r' the next r.

    In exact arithmetic r.p = r.r and r.s = p.s. With r.p, gamma minimises the error along p for
    every p; with r.r and p.s, rounding errors would grow after convergence.
    """
    inverse = reciprocal(dot(p, s))
    gamma = dot(r, p) * inverse
    return gamma, gamma * (dot(s, s) * inverse) - dot(r, s) * inverse


def dot(a: Float[Array, "n r"], b: Float[Array, "n r"]) -> Float[Array, "1 r"]:
    return jnp.sum(a * b, axis=0, keepdims=True)

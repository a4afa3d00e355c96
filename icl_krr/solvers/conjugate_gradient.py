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

    Each output has its own $\gamma_t$ and $\beta_t$. If a divisor underflows, the quotient is set
    to 0. Therefore all values and gradients stay finite if the solver continues after convergence.
    If $r$ becomes 0 before the last step, later steps have no derivative, and they contribute 0: so
    the Jacobian with respect to y is 0 at y = 0 (see `icl_krr.constructions.conjugate_gradient`).
    The solver and its derivatives run on each output of y divided by a power of two. This is exact
    and prevents overflow and underflow for very large or small y.

    Args:
        kernel, task, ridge, steps: as in `icl_krr.solvers`, which also says what is raised.
        form: order of the operations. "textbook" (default) is the recurrence above. "fused"
            computes all inner products in one parallel operation, with $\gamma = r^T p / p^T A p$
            and $\beta = (\gamma |A p|^2 - r^T A p) / p^T A p$. "pipelined" uses the same inner
            products and updates $A p$ by the recurrence
            $A p_{t+1} = A r_t - \gamma_t A A p_t + \beta_t A p_t$. The inner products and the
            products with $A$ can then run in parallel.

    Source: Hestenes, Stiefel, Methods of conjugate gradients for solving linear systems, 1952;
    Chronopoulos, Gear, 1989; Ghysels, Vanroose, 2014.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> conjugate_gradient(Linear(), task, ridge=2.0, steps=1).prediction[:, 0].tolist()
    [0.0, 1.0]
    """
    check_system(kernel, task, ridge, steps)
    checks.choice("form", form, tuple(FORMS))
    return solve(kernel, task, ridge, steps, form)


@partial(jax.jit, static_argnames=("steps", "form"))
def solve(kernel, task, ridge, steps, form) -> Trajectory:
    return trajectory(kernel, task, ridge, partial(iterate, steps, form))


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

    In exact arithmetic r.p = r.r and r.s = p.s. If the code used r.r and p.s, rounding errors would
    grow after convergence. With r.p, gamma minimises the error along p for every p, so the error
    cannot grow.
    """
    inverse = reciprocal(dot(p, s))
    gamma = dot(r, p) * inverse
    return gamma, gamma * (dot(s, s) * inverse) - dot(r, s) * inverse


def dot(a: Float[Array, "n r"], b: Float[Array, "n r"]) -> Float[Array, "1 r"]:
    return jnp.sum(a * b, axis=0, keepdims=True)

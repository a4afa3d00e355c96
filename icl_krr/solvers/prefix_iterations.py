"""Conjugate gradient and Chebyshev at every token, on the ridge regression of its prefix."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..numerics import matmul, reciprocal
from ..tasks import Task
from .paths import after
from .prefix import (
    check_gate,
    check_prefix,
    fits,
    in_units_of_y,
    num_features,
    prefix_systems,
    tokens_of,
)
from .results import CausalTrajectory, causal_trajectory


@checks.suggesting
def prefix_conjugate_gradient(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    preconditioner: str | None = None,
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    window: int | None = None,
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by conjugate gradient from $w = 0$.

    $$C_i = \sum_j e^{G_i - G_j} \beta_j \phi_j \phi_j^T, \quad
    b_i = \sum_j e^{G_i - G_j} \beta_j \phi_j y_j, \quad f_i = \phi_i^T w_i$$

    The sums run over the supports that token i sees: those before it, and for the prefix
    "inclusive" itself. They follow the recurrence $C \leftarrow e^g C + \beta \phi \phi^T$.

    Args:
        task, prefix, log_gate, strength, window: as in `icl_krr.solvers`, which also says what is
            raised.
        ridge: ridge $\lambda$ > 0, or a vector [m] of them: $C_i + \mathrm{diag}(\lambda)$.
        kernel: kernel with a feature map $\phi$ of m features, such as `Linear`.
        steps: number of steps, >= 1; m steps are exact without rounding.
        preconditioner: "jacobi" for the diagonal of $C_i + \lambda I$; default None: none.

    Source: von Oswald et al., MesaNet: sequence modeling by locally optimal test-time training,
    2025.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> prefix_conjugate_gradient(Linear(), task, ridge=1.0, steps=1).along[-1].tolist()
    [0.0, 1.0, 2.0]
    """
    checks.ridges(ridge, width := num_features(kernel, task))
    check_gate(log_gate, strength)
    check_prefix(kernel, task, prefix, window, steps, width)
    if preconditioner not in (None, "jacobi"):
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    return solve(kernel, task, ridge, log_gate, strength, steps, preconditioner, prefix, window)


@partial(jax.jit, static_argnames=("steps", "preconditioner", "prefix", "window"))
def solve(kernel, task, ridge, log_gate, strength, steps, preconditioner, prefix, window):
    run = partial(iterate, steps, preconditioner, prefix, window)
    return causal_trajectory(task, *in_units_of_y(task, run, 1, kernel, ridge, log_gate, strength))


def iterate(steps, preconditioner, prefix, window, task, kernel, ridge, log_gate, strength):
    phi, C, b = prefix_systems(kernel, tokens_of(task, log_gate, strength), prefix, window)
    w, r, d = conjugate_directions(C, b, jnp.asarray(ridge, phi.dtype), steps, preconditioner)
    return fits(phi, w), w, r, d


def conjugate_directions(C, b, ridge, steps, preconditioner=None):
    """All iterates w, r, d [L + 1, T, m, r] of (C + ridge I) w = b, for b [T, m, r]."""
    ridge = ridge.reshape(1, -1, 1)
    diagonal = jnp.diagonal(C, axis1=1, axis2=2) + ridge[..., 0]
    M = reciprocal(diagonal) if preconditioner else jnp.ones_like(diagonal)

    def step(state, _):
        w, r, d = state
        z = M[:, :, None] * r
        Ad = matmul(C, d) + ridge * d
        gamma = dot(r, z) * reciprocal(dot(d, Ad))
        r_next = r - gamma * Ad
        z_next = M[:, :, None] * r_next
        beta = dot(r_next, z_next) * reciprocal(dot(r, z))
        state = w + gamma * d, r_next, z_next + beta * d
        return state, state

    start = jnp.zeros_like(b), b, M[:, :, None] * b
    _, path = jax.lax.scan(step, start, length=steps)
    return after(start, path)


def dot(a: Float[Array, "T m r"], b: Float[Array, "T m r"]) -> Float[Array, "T 1 r"]:
    return jnp.sum(a * b, axis=1, keepdims=True)


@checks.suggesting
def prefix_chebyshev(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
    steps: int,
    spectrum: tuple | None = None,
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    window: int | None = None,
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by the Chebyshev iteration.

    $$w_{t+1} = w_t + d_t, \quad r_{t+1} = r_t - (C_i + \lambda I) d_t, \quad
    d_{t+1} = \mu_t d_t + \eta_t r_{t+1}$$

    The systems are those of `prefix_conjugate_gradient`. All tokens share the coefficients, which
    follow from the bounds $(a, b)$ before the first step.

    Args:
        task, steps, prefix, log_gate, strength, window: as in `icl_krr.solvers`, which also says
            what is raised.
        kernel, ridge: as in `prefix_conjugate_gradient`.
        spectrum: bounds (low, high) on the eigenvalues of $C_i + \lambda I$ of every prefix, as
            from `icl_krr.theory.prefix_bounds`; required (the default None raises an error).

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1; Peng et al., Gated
    KalmaNet, 2025.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> path = prefix_chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].tolist()
    [0.0, 2.0]
    """
    checks.ridges(ridge, width := num_features(kernel, task))
    check_gate(log_gate, strength)
    check_prefix(kernel, task, prefix, window, steps, width)
    momentum = step_sizes.chebyshev(steps, spectrum)
    return follow(kernel, task, ridge, log_gate, strength, momentum, prefix, window)


@partial(jax.jit, static_argnames=("prefix", "window"))
def follow(kernel, task, ridge, log_gate, strength, momentum, prefix, window):
    given = kernel, ridge, log_gate, strength, momentum
    return causal_trajectory(
        task, *in_units_of_y(task, partial(momentum_iterates, prefix, window), 1, *given)
    )


def momentum_iterates(prefix, window, task, kernel, ridge, log_gate, strength, momentum):
    phi, C, b = prefix_systems(kernel, tokens_of(task, log_gate, strength), prefix, window)
    ridge, momentum = jax.tree.map(lambda value: jnp.asarray(value, phi.dtype), (ridge, momentum))
    ridge = ridge.reshape(1, -1, 1)

    def step(state, coefficients):
        (w, r, d), (mu, eta) = state, coefficients
        w, r = w + d, r - (matmul(C, d) + ridge * d)
        state = w, r, mu * d + eta * r
        return state, state

    start = jnp.zeros_like(b), b, momentum.first * b
    _, path = jax.lax.scan(step, start, (momentum.a, momentum.b))
    w, r, d = after(start, path)
    return fits(phi, w), w, r, d

"""Conjugate gradient and Chebyshev at every token, on the ridge regression of its prefix."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..numerics import matmul, reciprocal
from ..tasks import Task
from .paths import after
from .prefix import (
    PrefixOptions,
    fits,
    in_units_of_y,
    num_features,
    prefix_systems,
    sees,
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
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by conjugate gradient from $w = 0$.

    $$C_i = \sum_j e^{G_i - G_j} \beta_j \phi_j \phi_j^T, \quad
    b_i = \sum_j e^{G_i - G_j} \beta_j \phi_j y_j, \quad f_i = \phi_i^T w_i$$

    The sums run over the supports that token i sees, with the features $\phi$ of the kernel, and
    follow the recurrence $C \leftarrow e^g C + \beta \phi \phi^T$. For m features, m steps are
    exact without rounding.

    Args:
        ridge: ridge $\lambda$ > 0, or a vector [m] of them: $C_i + \mathrm{diag}(\lambda)$.
        preconditioner: "jacobi" for the diagonal of $C_i + \lambda I$; default None: none.

    Source: von Oswald et al., MesaNet, 2025.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> prefix_conjugate_gradient(Linear(), task, ridge=1.0, steps=1).along[-1].tolist()
    [0.0, 1.0, 2.0]
    """
    checks.ridges(ridge, num_features(kernel, task))
    given = sees(kernel, task, steps, options)
    if preconditioner not in (None, "jacobi"):
        raise ValueError(f"preconditioner must be 'jacobi' or None, got {preconditioner!r}")
    return solve(task, iterate, (steps, preconditioner), kernel, given, ridge)


@partial(jax.jit, static_argnames=("iterates", "static"))
def solve(task, iterates, static, *given):
    return causal_trajectory(task, *in_units_of_y(task, partial(iterates, *static), 1, *given))


def iterate(steps, preconditioner, task, kernel, given, ridge):
    phi, C, b = prefix_systems(kernel, tokens_of(task, given), given)
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
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Solve $(C_i + \lambda I) w_i = b_i$ at every token by the Chebyshev iteration.

    $$w_{t+1} = w_t + d_t, \quad r_{t+1} = r_t - (C_i + \lambda I) d_t, \quad
    d_{t+1} = \mu_t d_t + \eta_t r_{t+1}$$

    The systems are those of `prefix_conjugate_gradient`. All tokens share the coefficients, which
    follow from the bounds $(a, b)$ before the first step.

    Args:
        ridge: as in `icl_krr.solvers.prefix_conjugate_gradient`.
        spectrum: bounds (low, high) on the eigenvalues of $C_i + \lambda I$ of every prefix, as
            from `icl_krr.theory.prefix_bounds`. A prefix with fewer supports than features has the
            eigenvalue $\lambda$, so use $a = \lambda$. With strengths <= 1, the largest eigenvalue
            of the whole context is a valid $b$.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1; Peng et al., Gated
    KalmaNet, 2025.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> path = prefix_chebyshev(Linear(), task, ridge=1.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].tolist()
    [0.0, 2.0]
    """
    checks.ridges(ridge, num_features(kernel, task))
    given = sees(kernel, task, steps, options)
    momentum = step_sizes.chebyshev(steps, spectrum)
    return solve(task, momentum_iterates, (), kernel, given, ridge, momentum)


def momentum_iterates(task, kernel, given, ridge, momentum):
    phi, C, b = prefix_systems(kernel, tokens_of(task, given), given)
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

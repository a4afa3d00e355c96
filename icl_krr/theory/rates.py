"""How fast solvers of A alpha = y converge, A's eigenvalues lying in [low, high] (C4, C5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..linalg import solve
from ..tasks import Task, system
from ..tasks.task import check_axes

Number = jax.Array | float


def gradient_descent_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""$((\kappa - 1) / (\kappa + 1))^t$: gradient descent with step $2 / (a + b)$ (C4).

    The factor by which every $A^s$-norm of the error falls at least; $\kappa = b / a$ for `low` $a$
    and `high` $b$.

    >>> float(gradient_descent_rate(1.0, 3.0, 2))
    0.25
    """
    return ((high - low) / jnp.asarray(high + low)) ** steps


def root_factor(low: Number, high: Number) -> jax.Array:
    root = jnp.sqrt(jnp.asarray(high) / low)
    return (root - 1) / (root + 1)


def heavy_ball_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""$q^t (1 + t + qt)$: heavy ball from $p_0 = \eta y$ (C4).

    $q = (\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1)$, $\kappa = b / a$ for `low` $a$ and `high` $b$.
    Its residual polynomial is $q^t (U_t - q U_{t-1})$, $U$ of the second kind: attained at $b$.

    >>> float(heavy_ball_rate(1.0, 9.0, 1))
    1.25
    """
    q = root_factor(low, high)
    return q**steps * (1 + steps + q * steps)


def conjugate_gradient_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""$2 q^t$: conjugate gradient in the $A$-norm (C4).

    $q = (\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1)$, $\kappa = b / a$ for `low` $a$ and `high` $b$.

    >>> float(conjugate_gradient_rate(1.0, 9.0, 1))
    1.0
    """
    return 2 * root_factor(low, high) ** steps


def chebyshev_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""$2 q^t / (1 + q^{2t})$, the sharp form: 1 over $T_t((b + a) / (b - a))$ (C4).

    $q = (\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1)$, $\kappa = b / a$ for `low` $a$ and `high` $b$.

    >>> float(chebyshev_rate(1.0, 3.0, 1).round(6))
    0.5
    """
    q = root_factor(low, high) ** steps
    return 2 * q / (1 + q * q)


def stationary_factor(low: Number, high: Number, step_size: Number) -> jax.Array:
    r"""$\max |1 - \eta \sigma|$: $\eta \sum_j (I - \eta A)^j$ converges iff it is < 1 (C5).

    That is for $0 < \eta < 2 / b$, `high` being $b$, and the smaller the ridge, the closer to 1.

    >>> float(stationary_factor(1.0, 3.0, 0.5))
    0.5
    """
    eta = jnp.asarray(step_size)
    return jnp.maximum(jnp.abs(1 - eta * low), jnp.abs(1 - eta * high))


def neumann_factor(sigma: Number, ridge: Number) -> jax.Array:
    r"""$\sigma_1 / \lambda$: $\sum_j (-K / \lambda)^j / \lambda$ converges iff it is < 1 (C5).

    So it needs a LARGE `ridge` $\lambda$, against the claim of "exact inversion for small ridge".

    >>> float(neumann_factor(8.0, 2.0))
    4.0
    """
    return jnp.asarray(sigma) / ridge


def energy_norm(matrix: Float[Array, "n n"], error: Float[Array, "... n"]) -> jax.Array:
    r"""$|e|_A = \sqrt{e^T A e}$, along the last axis (C4).

    >>> float(energy_norm(4 * jnp.eye(2), jnp.array([1.0, 0.0])))
    2.0
    """
    return jnp.sqrt(jnp.einsum("...i,ij,...j->...", error, matrix, error, precision="highest"))


def prediction_bound(
    kernel: Kernel, task: Task, alpha: Float[Array, " n"], *, ridge: float | Float[Array, ""]
) -> Float[Array, " q"]:
    r"""The error at every query, by that of alpha in the $A$-norm (C4).

    $$|f(x) - f^\ast(x)| \leq \sqrt{k(x)^T A^{-1} k(x)} \, |\alpha - \alpha^\ast|_A$$

    By Cauchy and Schwarz, for any `alpha` [n] and one output; attained where the error is along
    $A^{-1} k(x)$.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> prediction_bound(Linear(), task, jnp.zeros(1), ridge=1.0).round(6).tolist()
    [1.5]
    """
    check_kernel(kernel)
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    gram, cross, y = system(kernel, task)
    A = gram + jnp.asarray(ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    solved = solve(A, jnp.concatenate([y[:, :1], cross.T], axis=1))
    spread = jnp.sqrt(jnp.sum(cross.T * solved[:, 1:], axis=0))
    return spread * energy_norm(A, alpha - solved[:, 0])

"""How fast solvers of A alpha = y converge, A's eigenvalues lying in [low, high] (C4, C5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..linalg import solve
from ..tasks import Task, check_axes, system

Number = jax.Array | float


def gradient_descent_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    """((cond - 1) / (cond + 1))^t: gradient descent with step 2 / (low + high) (C4).

    The factor by which every A^s-norm of the error falls at least.

    >>> float(gradient_descent_rate(1.0, 3.0, 2))
    0.25
    """
    return ((high - low) / jnp.asarray(high + low)) ** steps


def root_factor(low: Number, high: Number) -> jax.Array:
    root = jnp.sqrt(jnp.asarray(high) / low)
    return (root - 1) / (root + 1)


def heavy_ball_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    """q^t (1 + t + q t), q = (sqrt cond - 1) / (sqrt cond + 1): heavy ball from p = eta y (C4).

    Its residual polynomial is q^t (U_t - q U_(t-1)), U of the second kind: attained at `high`.

    >>> float(heavy_ball_rate(1.0, 9.0, 1))
    1.25
    """
    q = root_factor(low, high)
    return q**steps * (1 + steps + q * steps)


def conjugate_gradient_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    """2 q^t, q = (sqrt cond - 1) / (sqrt cond + 1): conjugate gradient in the A-norm (C4).

    >>> float(conjugate_gradient_rate(1.0, 9.0, 1))
    1.0
    """
    return 2 * root_factor(low, high) ** steps


def chebyshev_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    """2 q^t / (1 + q^2t), the sharp form: 1 / T_t of (high + low) / (high - low) (C4).

    >>> float(chebyshev_rate(1.0, 3.0, 1).round(6))
    0.5
    """
    q = root_factor(low, high) ** steps
    return 2 * q / (1 + q * q)


def stationary_factor(low: Number, high: Number, step_size: Number) -> jax.Array:
    """max |1 - eta sigma|: eta sum_j (I - eta A)^j converges iff it is < 1 (C5).

    That is for 0 < eta < 2 / high, and the smaller the ridge, the closer to 1.

    >>> float(stationary_factor(1.0, 3.0, 0.5))
    0.5
    """
    eta = jnp.asarray(step_size)
    return jnp.maximum(jnp.abs(1 - eta * low), jnp.abs(1 - eta * high))


def neumann_factor(sigma: Number, ridge: Number) -> jax.Array:
    """sigma_1 / ridge: the series sum_j (-K / ridge)^j / ridge converges iff it is < 1 (C5).

    So it needs a LARGE ridge, against the claim of "exact inversion for small ridge".

    >>> float(neumann_factor(8.0, 2.0))
    4.0
    """
    return jnp.asarray(sigma) / ridge


def energy_norm(matrix: Float[Array, "n n"], error: Float[Array, "... n"]) -> jax.Array:
    """|e|_A = sqrt(e^T A e), along the last axis (C4).

    >>> float(energy_norm(4 * jnp.eye(2), jnp.array([1.0, 0.0])))
    2.0
    """
    return jnp.sqrt(jnp.einsum("...i,ij,...j->...", error, matrix, error, precision="highest"))


def prediction_bound(
    kernel: Kernel, task: Task, alpha: Float[Array, " n"], *, ridge: float | Float[Array, ""]
) -> Float[Array, " q"]:
    """|f(x) - f*(x)| <= sqrt(k(x)^T A^-1 k(x)) |alpha - alpha*|_A at every query (C4).

    By Cauchy and Schwarz, for any `alpha` [n] and one output; attained where the error is along
    A^-1 k(x).

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
    A = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
    solved = solve(A, jnp.concatenate([y[:, :1], cross.T], axis=1))
    spread = jnp.sqrt(jnp.sum(cross.T * solved[:, 1:], axis=0))
    return spread * energy_norm(A, alpha - solved[:, 0])

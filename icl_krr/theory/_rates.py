"""Convergence rates (C4, C5) and spectral filters (C23) of solvers of A alpha = y."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import Kernel
from .._core import checks
from .._core.linalg import solve
from ..tasks import Task, system
from ..tasks._linear_system import check_matrices
from ._softmax import _unmasked

Number = jax.Array | float


def gradient_descent_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""Return the rate of gradient descent with step size $2 / (a + b)$ (C4).

    $$((\kappa - 1) / (\kappa + 1))^t, \quad \kappa = b / a$$

    After $t$ steps the error $e$ is at most this factor times the initial error, in the norm
    $\sqrt{e^T A^s e}$ for every real $s$.

    >>> float(gradient_descent_rate(1.0, 3.0, 2))
    0.25
    """
    checks.spectrum((low, high))
    checks.nonnegatives(steps=steps)
    return ((high - low) / jnp.asarray(high + low)) ** steps


@jax.jit
def root_factor(low: Number, high: Number) -> jax.Array:
    root = jnp.sqrt(jnp.asarray(high) / low)
    return (root - 1) / (root + 1)


def heavy_ball_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""Return the rate $q^t (1 + t + qt)$ of the heavy-ball method (C4).

    Here $q = (\sqrt{\kappa} - 1) / (\sqrt{\kappa} + 1)$ and $\kappa = b / a$. For the start of
    `icl_krr.solvers.heavy_ball`, $\alpha_0 = 0$ and a first step $\eta y$, the residual polynomial
    is $q^t (U_t - q U_{t-1})$ with the Chebyshev polynomials $U$ of the second kind. The rate is
    attained at the eigenvalue $b$.

    >>> float(heavy_ball_rate(1.0, 9.0, 1))
    1.25
    """
    checks.spectrum((low, high))
    checks.nonnegatives(steps=steps)
    q = root_factor(low, high)
    return q**steps * (1 + steps + q * steps)


def conjugate_gradient_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""Return the rate $2 q^t$ of conjugate gradient in the $A$-norm (C4).

    Here $q$ is that of `heavy_ball_rate`.

    >>> float(conjugate_gradient_rate(1.0, 9.0, 1))
    1.0
    """
    checks.spectrum((low, high))
    checks.nonnegatives(steps=steps)
    return 2 * root_factor(low, high) ** steps


def chebyshev_rate(low: Number, high: Number, steps: Number) -> jax.Array:
    r"""Return the sharp rate $2 q^t / (1 + q^{2t})$ of the Chebyshev iteration (C4).

    Here $q$ is that of `heavy_ball_rate`. The rate equals $1 / T_t((b + a) / (b - a))$ with the
    Chebyshev polynomial $T_t$.

    >>> float(chebyshev_rate(1.0, 3.0, 1).round(6))
    0.5
    """
    checks.spectrum((low, high))
    checks.nonnegatives(steps=steps)
    q = root_factor(low, high) ** steps
    return 2 * q / (1 + q * q)


def stationary_factor(low: Number, high: Number, step_size: Number) -> jax.Array:
    r"""Return $\max |1 - \eta \sigma|$ over the eigenvalues $\sigma$ of $A$ in $[a, b]$ (C5).

    The series $\eta \sum_j (I - \eta A)^j$ converges to $A^{-1}$ if and only if this factor is < 1,
    that is $0 < \eta < 2 / b$. If $a$ goes to 0 for a fixed $\eta$, the factor goes to 1: a small
    ridge makes the convergence slow.

    >>> float(stationary_factor(1.0, 3.0, 0.5))
    0.5
    """
    checks.spectrum((low, high))
    checks.positives(step_size=step_size)
    eta = jnp.asarray(step_size)
    return jnp.maximum(jnp.abs(1 - eta * low), jnp.abs(1 - eta * high))


def neumann_factor(sigma: Number, ridge: Number) -> jax.Array:
    r"""Return $\sigma_1 / \lambda$, which decides whether a Neumann series converges (C5).

    The series $\sum_j (-K / \lambda)^j / \lambda$ converges to $(K + \lambda I)^{-1}$ if and only
    if this ratio is < 1, so it needs a large ridge. The series $\sum_j (-\lambda)^j K^{-(j+1)}$
    converges if and only if the ratio $\sigma_n / \lambda$ of the smallest eigenvalue is > 1. It
    needs a small ridge, and products with $K^{-1}$. Here `sigma` is $\sigma_1$ alone.

    >>> float(neumann_factor(8.0, 2.0))
    4.0
    """
    checks.nonnegative_scalar("sigma", sigma)
    checks.positive_scalar("ridge", ridge)
    return jnp.asarray(sigma) / ridge


def energy_norm(matrix: Float[Array, "n n"], error: Float[Array, "... n"]) -> jax.Array:
    r"""Return the $A$-norm $|e|_A = \sqrt{e^T A e}$ along the last axis (C4).

    Args:
        error: vectors $e$ [..., n].

    >>> float(energy_norm(4 * jnp.eye(2), jnp.array([1.0, 0.0])))
    2.0
    """
    checks.shapes(matrix=(matrix, "n n"), error=(error, "... n"))
    return jnp.sqrt(jnp.einsum("...i,ij,...j->...", error, matrix, error, precision="highest"))


def prediction_bound(
    kernel: Kernel, task: Task, alpha: Float[Array, " n"], *, ridge: Number
) -> Float[Array, " q"]:
    r"""Bound the prediction error at every query by the $A$-norm of the error of alpha (C4).

    $$|f(x) - f^\ast(x)| \leq \sqrt{k(x)^T A^{-1} k(x)} \, |\alpha - \alpha^\ast|_A$$

    This is the Cauchy-Schwarz inequality, with equality where $\alpha - \alpha^\ast$ is parallel to
    $A^{-1} k(x)$. `alpha` is any approximate solution; its entries of masked supports do not
    matter.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> prediction_bound(Linear(), task, jnp.zeros(1), ridge=1.0).round(6).tolist()
    [1.5]
    """
    check_matrices(kernel, task)
    checks.positive_scalar("ridge", ridge)
    checks.shapes(x=(task.x, "n p"), alpha=(alpha, "n"))
    return errors_of_predictions(kernel, task, alpha, ridge)


@jax.jit
def errors_of_predictions(kernel: Kernel, task: Task, alpha: Array, ridge: Array) -> Array:
    gram, cross, y = system(kernel, task)
    A = gram + jnp.asarray(ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    solved = solve(A, jnp.concatenate([y[:, :1], cross.T], axis=1))
    spread = jnp.sqrt(jnp.sum(cross.T * solved[:, 1:], axis=0))
    _, keep = _unmasked(task)
    return spread * energy_norm(A, jnp.where(keep, alpha - solved[:, 0], 0))


def exact_filter(sigma: Float[Array, "..."], ridge: Number) -> jax.Array:
    r"""Return the filter $1 / (\sigma + \lambda)$ of exact kernel ridge regression (C23).

    >>> float(exact_filter(1.0, 1.0))
    0.5
    """
    checks.reals(sigma=sigma)
    checks.positive_scalar("ridge", ridge)
    return 1 / (sigma + ridge)


def gradient_filter(sigma: Array, ridge: Number, step_size: Number, steps: int) -> Array:
    r"""Return the filter $(1 - (1 - \eta s)^t) / s$ of $t$ gradient descent steps from 0 (C23).

    Here $s = \sigma + \lambda$.

    Source: Yao, Rosasco, Caponnetto, On early stopping in gradient descent learning, 2007.

    >>> float(gradient_filter(1.0, 1.0, step_size=0.25, steps=1))
    0.25
    """
    checks.reals(sigma=sigma)
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("step_size", step_size)
    checks.count("steps", steps, minimum=0)
    a = sigma + ridge
    return (1 - (1 - step_size * a) ** steps) / a


def chebyshev_filter(sigma: Array, ridge: Number, spectrum: tuple, steps: int) -> Array:
    r"""Return the filter $(1 - T_t(z(s)) / T_t(z(0))) / s$ of $t$ Chebyshev steps from 0 (C23).

    Here $s = \sigma + \lambda$, $z$ is the linear map of the interval (low, high) to $(-1, 1)$, and
    $T_t$ is the Chebyshev polynomial of degree $t$. Low and high may be equal.

    Source: Saad, Iterative methods for sparse linear systems, section 12.3.

    >>> float(chebyshev_filter(1.0, 1.0, (2.0, 6.0), steps=1))
    0.25
    """
    checks.reals(sigma=sigma)
    checks.positive_scalar("ridge", ridge)
    low, high = checks.spectrum(spectrum)
    checks.count("steps", steps, minimum=0)
    a, centre = sigma + ridge, (low + high) / 2
    squared, u = ((high - low) / (high + low)) ** 2, 1 - a / centre
    # now is T_t(z(s)) / T_t(z(0)), and g is z(0) T_{t-1}(z(0)) / T_t(z(0))
    previous, current, g = 1 + 0 * u, u, 1.0
    for _ in range(steps):
        before, g = squared * g * previous, 1 / (2 - squared * g)
        previous, current = current, g * (2 * u * current - before)
    return (1 - previous) / a


RATES: dict[str, Callable[..., jax.Array]] = {
    "gradient_descent": gradient_descent_rate,
    "heavy_ball": heavy_ball_rate,
    "chebyshev": chebyshev_rate,
    "conjugate_gradient": conjugate_gradient_rate,
}
"""{solver of the catalogue: its rate}; other solvers have no bound here."""

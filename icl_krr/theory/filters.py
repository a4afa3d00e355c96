"""Spectral filters: functions of the eigenvalues of K that describe solvers linear in y (C23).

A solver with filter $q$ predicts $k(x)^T q(K) y$.
"""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from .. import checks


def exact_filter(sigma: Float[Array, "..."], ridge: Float[Array, ""] | float) -> jax.Array:
    r"""Return the filter $1 / (\sigma + \lambda)$ of exact kernel ridge regression (C23).

    The filter of a convergent solver approaches this filter as the number of steps grows.

    Args:
        sigma: eigenvalues $\sigma$ of $K$, of any shape [...].

    >>> float(exact_filter(1.0, 1.0))
    0.5
    """
    checks.reals(sigma=sigma)
    checks.positive_scalar("ridge", ridge)
    return 1 / (sigma + ridge)


def gradient_filter(
    sigma: Float[Array, "..."],
    ridge: Float[Array, ""] | float,
    step_size: Float[Array, ""] | float,
    steps: int,
) -> jax.Array:
    r"""Return the filter $(1 - (1 - \eta s)^t) / s$ of $t$ gradient descent steps from 0 (C23).

    Here $s = \sigma + \lambda$.

    Args:
        sigma: as in `exact_filter`.
        step_size: step size $\eta$ of gradient descent.

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


def chebyshev_filter(
    sigma: Float[Array, "..."], ridge: Float[Array, ""] | float, spectrum: tuple, steps: int
) -> jax.Array:
    r"""Return the filter $(1 - T_t(z(s)) / T_t(z(0))) / s$ of $t$ Chebyshev steps from 0 (C23).

    Here $s = \sigma + \lambda$, $z$ is the linear map of the interval (low, high) to $(-1, 1)$, and
    $T_t$ is the Chebyshev polynomial of degree $t$. The code computes the quotient without $z$,
    so low and high may be equal.

    Args:
        sigma: as in `exact_filter`.

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
    last, now, g = 1 + 0 * u, u, 1.0
    for _ in range(steps):
        before, g = squared * g * last, 1 / (2 - squared * g)
        last, now = now, g * (2 * u * now - before)
    return (1 - last) / a

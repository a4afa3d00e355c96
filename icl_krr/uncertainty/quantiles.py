"""Quantiles and central intervals of a predictive distribution."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from .. import checks
from ..numerics import reciprocal
from ..readable import readable
from .densities import cdf, log_density
from .distribution import Predictive, check_predictive, like, one_program


@readable
class Interval(NamedTuple):
    """A central interval of a predictive distribution.

    Attributes:
        lower: lower ends [...].
        upper: upper ends [...].
    """

    lower: Float[Array, "..."]
    upper: Float[Array, "..."]


def check_probability(predictive: Any, **probability: Any) -> None:
    check_predictive(predictive)
    for name, value in probability.items():
        checks.scalar(name, value)
        if (known := checks.concrete(value)) is not None:
            checks.each(name, known, (known > 0) & (known < 1), "> 0 and < 1")


@one_program(check_probability)
def quantile(predictive: Predictive, probability: float | Float[Array, ""]) -> Float[Array, "..."]:
    r"""Compute the output below which the given probability lies: $F(y) = p$.

    For one Gaussian, $y = m + \sqrt{v} \, \Phi^{-1}(p)$. A quantile of a mixture lies between the
    smallest and the largest quantile of its Gaussians. Bisection between these two takes as many
    steps as the dtype has bits. The derivatives are those of the exact quantile:
    $dy = (dp - dF) / F'(y)$.

    Args:
        probability: probability $p$ between 0 and 1; may be traced.

    >>> import numpy as np
    >>> both = Predictive(np.array([0.25, 0.75]), np.array([-9.0, 9.0]), np.ones(2))
    >>> round(float(quantile(both, 0.625)), 4)
    9.0
    """
    p = like(predictive, probability)
    each = predictive.means + jnp.sqrt(predictive.variances) * ndtri(p)
    if predictive.means.shape[-1] == 1:
        return each[..., 0]
    fixed, target = jax.lax.stop_gradient((predictive, p))

    def halve(_, ends):
        low, high = ends
        middle = low + (high - low) / 2
        below = cdf(fixed, middle) < target
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    used = jnp.where(fixed.weights > 0, each, jnp.nan)
    ends = jax.lax.stop_gradient((jnp.nanmin(used, axis=-1), jnp.nanmax(used, axis=-1)))
    low, high = jax.lax.fori_loop(0, 8 * p.dtype.itemsize, halve, ends)
    y = low + (high - low) / 2
    gap = cdf(predictive, y) - p
    slope = reciprocal(jnp.exp(log_density(fixed, y)))
    return y - (gap - jax.lax.stop_gradient(gap)) * slope


@one_program(check_probability)
def interval(predictive: Predictive, level: float | Float[Array, ""] = 0.95) -> Interval:
    r"""Compute the central interval that an output falls into with a given probability.

    Its ends are the quantiles of $(1 - c) / 2$ and $(1 + c) / 2$ for the level $c$.

    Args:
        level: the probability, between 0 and 1; may be traced.

    >>> import numpy as np
    >>> lower, upper = interval(Predictive(np.ones(1), np.zeros(1), np.ones(1)))
    >>> round(float(lower), 2), round(float(upper), 2)
    (-1.96, 1.96)
    """
    half = like(predictive, level) / 2
    return Interval(quantile(predictive, 0.5 - half), quantile(predictive, 0.5 + half))

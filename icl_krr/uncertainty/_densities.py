"""Densities, quantiles, probabilities of bins and scores of predictive distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr, ndtri
from jaxtyping import Array, Float

from .._core import checks
from .._core.numerics import reciprocal
from .._core.readable import readable
from ._distribution import Predictive, check_outputs, check_predictive, like, one_program

NODES, WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(8))


def spread(predictive: Predictive, y: Any) -> tuple[jax.Array, ...]:
    """Weights, means and deviations in the shape [..., G] of the outputs, and the outputs."""
    y = like(predictive, y)
    w, m, v = (jnp.broadcast_to(part, (*y.shape, part.shape[-1])) for part in predictive)
    return w, m, jnp.sqrt(v), jnp.broadcast_to(y[..., None], m.shape)


@one_program(check_outputs)
def log_density(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the logarithm of the density at outputs y.

    $$\log p(y) = \log \sum_g w_g \, N(y; m_g, v_g)$$

    The largest term is taken out of the sum, so that outputs far in the tails have a finite value.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(log_density(normal, np.array(100.0))), 2)
    -5000.92
    """
    w, m, s, y = spread(predictive, y)
    terms = -0.5 * ((y - m) / s) ** 2 - jnp.log(s) - 0.5 * np.log(2 * np.pi).item()
    return logsumexp(terms, axis=-1, b=w)


@one_program(check_outputs)
def cdf(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the distribution function at outputs y.

    $$F(y) = \sum_g w_g \, \Phi((y - m_g) / \sqrt{v_g})$$

    At an observed output, this is the probability integral transform, which is uniform on [0, 1] if
    the distributions are right (see `uniformity`). Small values keep their relative accuracy.

    Source: Gneiting, Balabdaoui, Raftery, Probabilistic forecasts, calibration and sharpness, 2007.

    >>> both = Predictive(np.array([0.5, 0.5]), np.array([-9.0, 9.0]), np.ones(2))
    >>> float(cdf(both, np.array(0.0)))
    0.5
    """
    w, m, s, y = spread(predictive, y)
    return jnp.sum(w * ndtr((y - m) / s), axis=-1)


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
        if (number := checks.concrete(value)) is not None:
            checks.each(name, number, (number > 0) & (number < 1), "> 0 and < 1")


@one_program(check_probability)
def quantile(predictive: Predictive, probability: float | Float[Array, ""]) -> Float[Array, "..."]:
    r"""Compute the output below which the given probability lies: $F(y) = p$.

    For one Gaussian, $y = m + \sqrt{v} \, \Phi^{-1}(p)$. A quantile of a mixture lies between the
    smallest and the largest quantile of its Gaussians. Bisection between these two takes as many
    steps as the dtype has bits. The derivatives are those of the exact quantile:
    $dy = (dp - dF) / F'(y)$.

    Args:
        probability: probability $p$ between 0 and 1; may be traced.

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

    >>> lower, upper = interval(Predictive(np.ones(1), np.zeros(1), np.ones(1)))
    >>> round(float(lower), 2), round(float(upper), 2)
    (-1.96, 1.96)
    """
    half = like(predictive, level) / 2
    return Interval(quantile(predictive, 0.5 - half), quantile(predictive, 0.5 + half))


def check_edges(predictive: Any, edges: Any) -> None:
    check_predictive(predictive)
    checks.increasing("edges", edges)


@one_program(check_edges)
def bins(predictive: Predictive, edges: Float[Array, " E"]) -> Float[Array, "... B"]:
    r"""Compute the probabilities of E - 1 bins and of the two tails beside them.

    $$b_0 = F(c_1), \quad b_i = F(c_{i+1}) - F(c_i), \quad b_E = 1 - F(c_E)$$

    These B = E + 1 probabilities have the sum 1. A prior-data fitted network gives such a vector as
    its output. Every probability keeps its relative accuracy: a difference of two normal
    distribution functions is taken in the tail in which both are small, and narrow bins are
    integrated by Gauss-Legendre quadrature.

    Args:
        edges: E >= 1 increasing edges $c$.

    Source: Mueller, Hollmann, Arango, Grabocka, Hutter, Transformers can do Bayesian inference,
    2022, for outputs in bins.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> [round(float(b), 4) for b in bins(normal, np.array([-1.0, 0.0, 1.0]))]
    [0.1587, 0.3413, 0.3413, 0.1587]
    """
    shape = (len(edges), *predictive.means.shape[:-1])
    places = edges.reshape(-1, *[1] * (len(shape) - 1))
    w, m, s, y = spread(predictive, jnp.broadcast_to(places, shape))
    z = (y - m) / s
    parts = jnp.concatenate([ndtr(z[:1]), between(z[:-1], z[1:]), ndtr(-z[-1:])])
    w = jnp.broadcast_to(w[:1], parts.shape)
    return jnp.moveaxis(jnp.sum(w * parts, axis=-1), 0, -1)


def between(low: jax.Array, high: jax.Array) -> jax.Array:
    """The probability of a standard normal variable between two numbers, low < high."""
    upper = low > 0
    difference = ndtr(jnp.where(upper, -low, high)) - ndtr(jnp.where(upper, -high, low))
    middle, half = (low + high) / 2, (high - low) / 2
    root = np.sqrt(2 * np.pi).item()
    points = ((middle + t * half, w) for t, w in zip(NODES, WEIGHTS, strict=True))
    close = sum(w * (jnp.exp(-(z**2) / 2) / root) for z, w in points) * half
    narrow = 2 * half * jnp.maximum(1, jnp.abs(middle)) < 1
    return jnp.where(narrow, close, difference)


@one_program(check_outputs)
def log_likelihood(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Compute the mean of $\log p(y)$ over all outputs, a scalar; a larger one is better.

    >>> normal = Predictive(np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))
    >>> round(float(log_likelihood(normal, np.array([0.0, 2.0]))), 3)
    -1.919
    """
    return jnp.mean(log_density(predictive, y))


@one_program(check_outputs)
def crps(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the continuous ranked probability score $\int (F(t) - [t \geq y])^2 dt$ at y.

    The score has the unit of y, and a smaller one is better. `scoringrules` computes it.

    Source: Grimit, Gneiting, Berrocal, Johnson, The continuous ranked probability score for
    circular variables and its application to mesoscale forecast ensemble verification, 2006, eq. 5.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(crps(normal, np.array(0.0))), 4)
    0.2337
    """
    from scoringrules import crps_mixnorm  # which takes 0.5 s

    w, m, s, y = spread(predictive, y)
    return jnp.asarray(crps_mixnorm(y[..., 0], m, s, w, backend="jax"))

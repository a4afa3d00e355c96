"""Density, distribution function, probabilities of bins and scores of predictive distributions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from .. import checks
from .distribution import Predictive, check_outputs, check_predictive, like, one_program

NODES, WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(8))


@one_program(check_outputs)
def log_density(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the logarithm of the density at outputs y.

    $$\log p(y) = \log \sum_g w_g \, N(y; m_g, v_g)$$

    The largest term is taken out of the sum, so that outputs far in the tails have a finite value.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(log_density(normal, np.array(100.0))), 2)
    -5000.92
    """
    z, scale = standardised(predictive, like(predictive, y))
    terms = -0.5 * z**2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi).astype(z.dtype)
    return logsumexp(terms, axis=-1, b=jnp.broadcast_to(predictive.weights, terms.shape))


@one_program(check_outputs)
def cdf(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the distribution function at outputs y.

    $$F(y) = \sum_g w_g \, \Phi((y - m_g) / \sqrt{v_g})$$

    At an observed output, this is the probability integral transform. It is uniform on [0, 1] if
    the predictive distributions are right (see `uniformity`). Small values keep their relative
    accuracy.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Source: Gneiting, Balabdaoui, Raftery, Probabilistic forecasts, calibration and sharpness, 2007.

    >>> both = Predictive(np.array([0.5, 0.5]), np.array([-9.0, 9.0]), np.ones(2))
    >>> float(cdf(both, np.array(0.0)))
    0.5
    """
    z, _ = standardised(predictive, like(predictive, y))
    return jnp.sum(jnp.broadcast_to(predictive.weights, z.shape) * ndtr(z), axis=-1)


def standardised(predictive: Predictive, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(y - m) / s for every Gaussian, [..., G], and its standard deviation s in the same shape."""
    shape = (*y.shape, predictive.means.shape[-1])
    means, scale = (
        jnp.broadcast_to(part, shape) for part in (predictive.means, jnp.sqrt(predictive.variances))
    )
    return (jnp.broadcast_to(y[..., None], shape) - means) / scale, scale


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
        predictive: as in `icl_krr.uncertainty`, which also says what is raised.
        edges: E >= 1 increasing edges $c$, [E], floating point.

    Returns:
        The probabilities [..., E + 1] of an output below the first edge, between neighbouring
        edges, and above the last edge, in the dtype of the distributions.

    Source: Mueller, Hollmann, Arango, Grabocka, Hutter, Transformers can do Bayesian inference,
    2022, for outputs in bins.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> [round(float(b), 4) for b in bins(normal, np.array([-1.0, 0.0, 1.0]))]
    [0.1587, 0.3413, 0.3413, 0.1587]
    """
    shape = (len(edges), *predictive.means.shape[:-1])
    places = like(predictive, edges).reshape(-1, *[1] * (len(shape) - 1))
    z, _ = standardised(predictive, jnp.broadcast_to(places, shape))
    parts = jnp.concatenate([ndtr(z[:1]), between(z[:-1], z[1:]), ndtr(-z[-1:])])
    weights = jnp.broadcast_to(predictive.weights, parts.shape)
    return jnp.moveaxis(jnp.sum(weights * parts, axis=-1), 0, -1)


def between(low: jax.Array, high: jax.Array) -> jax.Array:
    """The probability of a standard normal variable between two numbers, low < high."""
    right = low > 0
    apart = ndtr(jnp.where(right, -low, high)) - ndtr(jnp.where(right, -high, low))
    middle, half = (low + high) / 2, (high - low) / 2
    close = sum(w * density(middle + t * half) for t, w in zip(NODES, WEIGHTS, strict=True)) * half
    narrow = 2 * half * jnp.maximum(1, jnp.abs(middle)) < 1
    return jnp.where(narrow, close, apart)


def density(z: jax.Array) -> jax.Array:
    return jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi).item()


@one_program(check_outputs)
def log_likelihood(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Compute the mean of $\log p(y)$ over all outputs, a scalar; a larger one is better.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    >>> normal = Predictive(np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))
    >>> round(float(log_likelihood(normal, np.array([0.0, 2.0]))), 3)
    -1.919
    """
    return jnp.mean(log_density(predictive, y))


@one_program(check_outputs)
def crps(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the continuous ranked probability score at outputs y.

    $$\int (F(t) - [t \geq y])^2 dt = \sum_g w_g \, a(y - m_g, v_g) -
    \frac{1}{2} \sum_{gh} w_g w_h \, a(m_g - m_h, v_g + v_h)$$

    Here $a(d, v) = 2 s \, \varphi(d / s) + d \, (2 \Phi(d / s) - 1)$ with $s = \sqrt{v}$ is the
    mean of $|d + s z|$ for a standard normal variable $z$. The score has the unit of y, and a
    smaller one is better.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Source: Grimit, Gneiting, Berrocal, Johnson, The continuous ranked probability score for
    circular variables and its application to mesoscale forecast ensemble verification, 2006, eq. 5.

    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(crps(normal, np.array(0.0))), 4)
    0.2337
    """
    y = like(predictive, y)
    weights, means, variances = predictive
    shape = (*y.shape, means.shape[-1])
    w, m, v = (jnp.broadcast_to(part, shape) for part in predictive)
    near = jnp.sum(w * absolute(jnp.broadcast_to(y[..., None], shape) - m, v), axis=-1)
    pairs = absolute(
        means[..., :, None] - means[..., None, :], variances[..., :, None] + variances[..., None, :]
    )
    spread = jnp.sum(weights[..., :, None] * weights[..., None, :] * pairs, axis=(-2, -1))
    return near - jnp.broadcast_to(spread, near.shape) / 2


def absolute(d: jax.Array, v: jax.Array) -> jax.Array:
    s = jnp.sqrt(v)
    return 2 * s * density(d / s) + d * (2 * ndtr(d / s) - 1)

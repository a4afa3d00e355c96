"""Probabilities of bins under a predictive distribution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from .. import checks
from .densities import standardised
from .distribution import Predictive, check_predictive, like

NODES, WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(8))


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
    check_predictive(predictive)
    checks.increasing("edges", edges)
    return probabilities(predictive, edges)


@jax.jit
def probabilities(predictive: Predictive, edges: jax.Array) -> jax.Array:
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

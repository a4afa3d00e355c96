"""Density and distribution function of a predictive distribution."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from .distribution import Predictive, check_outputs, like


def log_density(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the logarithm of the density at outputs y.

    $$\log p(y) = \log \sum_g w_g \, N(y; m_g, v_g)$$

    The largest term is taken out of the sum, so that outputs far in the tails have a finite value.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Returns:
        The logarithms, in the shape of y and the dtype of the distributions.

    >>> import numpy as np
    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(log_density(normal, np.array(100.0))), 2)
    -5000.92
    """
    check_outputs(predictive, y)
    return logarithm_of_density(predictive, y)


@jax.jit
def logarithm_of_density(predictive: Predictive, y: jax.Array) -> jax.Array:
    z, scale = standardised(predictive, like(predictive, y))
    terms = -0.5 * z**2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi).astype(z.dtype)
    return logsumexp(terms, axis=-1, b=jnp.broadcast_to(predictive.weights, terms.shape))


def cdf(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the distribution function at outputs y.

    $$F(y) = \sum_g w_g \, \Phi((y - m_g) / \sqrt{v_g})$$

    At an observed output, this is the probability integral transform. It is uniform on [0, 1] if
    the predictive distributions are right (see `uniformity`).

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Returns:
        The probabilities, in the shape of y and the dtype of the distributions. Small values keep
        their relative accuracy.

    Source: Gneiting, Balabdaoui, Raftery, Probabilistic forecasts, calibration and sharpness, 2007.

    >>> import numpy as np
    >>> both = Predictive(np.array([0.5, 0.5]), np.array([-9.0, 9.0]), np.ones(2))
    >>> float(cdf(both, np.array(0.0)))
    0.5
    """
    check_outputs(predictive, y)
    return probability_below(predictive, y)


@jax.jit
def probability_below(predictive: Predictive, y: jax.Array) -> jax.Array:
    z, _ = standardised(predictive, like(predictive, y))
    return jnp.sum(jnp.broadcast_to(predictive.weights, z.shape) * ndtr(z), axis=-1)


def standardised(predictive: Predictive, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(y - m) / s for every Gaussian, [..., G], and its standard deviation s in the same shape."""
    shape = (*y.shape, predictive.means.shape[-1])
    means, scale = (
        jnp.broadcast_to(part, shape) for part in (predictive.means, jnp.sqrt(predictive.variances))
    )
    return (jnp.broadcast_to(y[..., None], shape) - means) / scale, scale

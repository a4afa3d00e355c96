"""Scores of predictive distributions at observed outputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

from .bins import density
from .densities import logarithm_of_density
from .distribution import Predictive, check_outputs, like


def log_likelihood(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, ""]:
    r"""Compute the mean of $\log p(y)$ over all outputs.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Returns:
        The mean, a scalar in the dtype of the distributions. A larger one is better.

    >>> import numpy as np
    >>> normal = Predictive(np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))
    >>> round(float(log_likelihood(normal, np.array([0.0, 2.0]))), 3)
    -1.919
    """
    check_outputs(predictive, y)
    return mean_of_logarithms(predictive, y)


@jax.jit
def mean_of_logarithms(predictive: Predictive, y: jax.Array) -> jax.Array:
    return jnp.mean(logarithm_of_density(predictive, y))


def crps(predictive: Predictive, y: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute the continuous ranked probability score at outputs y.

    $$\int (F(t) - [t \geq y])^2 dt = \sum_g w_g \, a(y - m_g, v_g) -
    \frac{1}{2} \sum_{gh} w_g w_h \, a(m_g - m_h, v_g + v_h)$$

    Here $a(d, v) = 2 s \, \varphi(d / s) + d \, (2 \Phi(d / s) - 1)$ with $s = \sqrt{v}$ is the
    mean of $|d + s z|$ for a standard normal variable $z$. The score has the unit of y.

    Args:
        predictive, y: as in `icl_krr.uncertainty`, which also says what is raised.

    Returns:
        The scores, in the shape of y and the dtype of the distributions. A smaller one is better.

    Source: Grimit, Gneiting, Berrocal, Johnson, The continuous ranked probability score for
    circular variables and its application to mesoscale forecast ensemble verification, 2006, eq. 5.

    >>> import numpy as np
    >>> normal = Predictive(np.ones(1), np.zeros(1), np.ones(1))
    >>> round(float(crps(normal, np.array(0.0))), 4)
    0.2337
    """
    check_outputs(predictive, y)
    return ranked(predictive, y)


@jax.jit
def ranked(predictive: Predictive, y: jax.Array) -> jax.Array:
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

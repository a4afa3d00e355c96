"""Bias, variance and best bandwidth of a softmax head as an estimator (C31)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks

Number = jax.Array | float


def smoothing_bias(laplacian: Float[Array, "..."], bandwidth: Number) -> Float[Array, "..."]:
    r"""Return the bias $h^2 \Delta f(x) / 2$ of a softmax head for many supports (C31).

    The head estimates $f$ from noisy outputs $y_j$ with mean $f(x_j)$. Its logits are those of a
    Gaussian kernel of bandwidth $h$, the lengthscale. The supports are spread uniformly around x.
    The formula is the leading term for $h \to 0$.

    Args:
        laplacian: values of $\Delta f$ at the queries, of any shape [...]. On a sphere, this is the
            Laplacian of the sphere.
        bandwidth: bandwidth $h$ > 0. For the exponential kernel on a sphere of radius 1, it is the
            square root of the temperature.

    Source: Wasserman, All of nonparametric statistics, 2006, theorem 5.44.

    >>> float(smoothing_bias(2.0, 0.5))
    0.25
    """
    checks.reals(laplacian=laplacian)
    checks.positive_scalar("bandwidth", bandwidth)
    return jnp.asarray(bandwidth) ** 2 * laplacian / 2


def smoothing_variance(
    bandwidth: Number, dimension: int, *, num_supports: int, density: Number, noise: Number
) -> Float[Array, ""]:
    r"""Return the variance $s / (n \rho (2 \sqrt{\pi} h)^d)$ of a softmax head (C31).

    The variance is over the noise in the outputs. The number $n \rho (2 \sqrt{\pi} h)^d$ is the
    number of supports over which the head averages. The formula is the leading term for
    $h \to 0$ and $n h^d \to \infty$.

    Args:
        bandwidth: as in `smoothing_bias`.
        dimension: dimension $d$ of the set of inputs, >= 1; p - 1 on a sphere.
        density: probability density $\rho$ > 0 of the supports at the query.
        noise: variance $s$ > 0 of the noise.

    Source: Wasserman, All of nonparametric statistics, 2006, theorem 5.44.

    >>> round(float(smoothing_variance(0.5, 1, num_supports=100, density=1.0, noise=1.0)), 4)
    0.0056
    """
    checks.count("dimension", dimension)
    checks.count("num_supports", num_supports)
    checks.positives(bandwidth=bandwidth, density=density, noise=noise)
    averaged = num_supports * density * (2 * jnp.sqrt(jnp.pi) * bandwidth) ** dimension
    return jnp.asarray(noise / averaged)


def best_bandwidth(bias: Number, variance: Number, dimension: int) -> Float[Array, ""]:
    r"""Return the bandwidth $(d v / 4 b^2)^{1 / (d + 4)}$ of least mean squared error (C31).

    The mean squared error is $b^2 h^4 + v h^{-d}$. Since $v$ falls as $1 / n$ with the number n of
    supports, the best bandwidth falls as $n^{-1 / (d + 4)}$, and the error as $n^{-4 / (d + 4)}$.

    Args:
        bias: root mean square $b$ > 0 of the bias at bandwidth 1 (see `smoothing_bias`).
        variance: variance $v$ > 0 at bandwidth 1 (see `smoothing_variance`).
        dimension: as in `smoothing_variance`.

    Source: Wasserman, All of nonparametric statistics, 2006, theorem 5.44.

    >>> float(best_bandwidth(0.5, 1.0, 1))
    1.0
    """
    checks.count("dimension", dimension)
    checks.positives(bias=bias, variance=variance)
    return jnp.asarray((dimension * variance / (4 * bias**2)) ** (1 / (dimension + 4)))

"""One softmax head is a smoother (C2, C6, C7), which estimates a function (C31)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.stats import rankdata
from jaxtyping import Array, Float

from .. import Exponential
from .._core import checks

Number = jax.Array | float


def rank_correlation(a: Float[Array, " q"], b: Float[Array, " q"]) -> Float[Array, ""]:
    """Return Spearman's rank correlation; ties share their average rank (C2).

    A smoother can have a small error and still order the queries wrongly.

    >>> float(rank_correlation(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 4.0, 9.0])).round(6))
    1.0
    """
    checks.shapes(a=(a, "q"), b=(b, "q"))
    return jnp.corrcoef(rankdata(a), rankdata(b))[0, 1]


def mean_limit_bound(spread: Number, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Bound the distance between the output of a softmax head and the mean of $y$ (C6).

    $$|f_{NW}(x) - \bar y| \leq \tanh(s / 4) (\max y - \min y)$$

    The bound is small for large temperatures. It is attained if the logits take only two values,
    with $\max y$ at all supports of one and $\min y$ at all of the other, and the numbers of
    supports with the larger and the smaller logit are in the ratio 1 to $e^{s/2}$.

    Args:
        spread: difference $s$ >= 0 between the largest and the smallest logit of the query x.

    >>> float(mean_limit_bound(0.0, jnp.array([1.0, 2.0])))
    0.0
    """
    checks.nonnegatives(spread=spread)
    checks.shapes(values=(values, "n"))
    return jnp.tanh(jnp.asarray(spread) / 4) * (jnp.max(values) - jnp.min(values))


def nearest_limit_bound(gap: Number, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Bound the distance between the output of a softmax head and $y$ at the largest logit (C6).

    $$|f_{NW}(x) - y_1| \leq (\max y - \min y) m / (1 + m), \quad m = (n - 1) e^{-g}$$

    $y_1$ is the output of the support with the largest logit: the nearest one for the Gaussian
    kernel, and for the exponential kernel on a sphere, otherwise that of the largest inner product.
    The bound is small for small temperatures. It is attained if $y_1$ is one extreme of $y$, and
    all other supports have the same logit and the other extreme.

    Args:
        gap: difference $g$ >= 0 between the two largest logits of the query x.

    >>> float(nearest_limit_bound(100.0, jnp.array([1.0, 2.0])))
    0.0
    """
    checks.nonnegatives(gap=gap)
    checks.shapes(values=(values, "n"))
    others = (len(values) - 1) * jnp.exp(-jnp.asarray(gap))
    return others / (1 + others) * (jnp.max(values) - jnp.min(values))


def gaussian_from_exponential(
    x: Float[Array, "n p"], z: Float[Array, "m p"], lengthscale: Number
) -> Float[Array, "n m"]:
    r"""Compute the Gaussian kernel matrix $G = E \tilde K E$ from the exponential one (C7).

    $E = \mathrm{diag}(\exp(-|x|^2 / 2\ell^2))$, and $\tilde K$ is the exponential kernel matrix
    with temperature $\ell^2$. On a sphere the two kernels differ only by a constant factor.

    Args:
        lengthscale: lengthscale $\ell$ > 0 of $G$.

    >>> float(gaussian_from_exponential(jnp.ones((1, 1)), jnp.ones((1, 1)), 1.0)[0, 0])
    1.0
    """
    checks.shapes(x=(x, "n p"), z=(z, "m p"))
    checks.positive_scalar("lengthscale", lengthscale)
    checks.matrices(x, z)
    return scaled_exponential(x, z, lengthscale)


@jax.jit
def scaled_exponential(x: jax.Array, z: jax.Array, lengthscale: jax.Array) -> jax.Array:
    temperature = lengthscale**2
    ex, ez = (jnp.exp(-jnp.sum(points * points, -1) / (2 * temperature)) for points in (x, z))
    return ex[:, None] * Exponential(temperature)(x, z) * ez[None, :]


def smoothing_bias(laplacian: Float[Array, "..."], bandwidth: Number) -> Float[Array, "..."]:
    r"""Return the bias $h^2 \Delta f(x) / 2$ of a softmax head for many supports (C31).

    The head estimates $f$ from noisy outputs $y_j$ with mean $f(x_j)$. Its logits are those of a
    Gaussian kernel, and the supports are spread uniformly around x. The formula is the leading term
    for $h \to 0$.

    Args:
        laplacian: values of $\Delta f$ at the queries; on a sphere, the Laplacian of the sphere.

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

    The variance is over the noise, of variance $s$, in the outputs. The head averages over
    $n \rho (2 \sqrt{\pi} h)^d$ supports. The formula is the leading term for $h \to 0$ and
    $n h^d \to \infty$, with the same source as `smoothing_bias`.

    Args:
        density: probability density $\rho$ > 0 of the supports at the query.

    >>> round(float(smoothing_variance(0.5, 1, num_supports=100, density=1.0, noise=1.0)), 4)
    0.0056
    """
    checks.count("dimension", dimension)
    checks.count("num_supports", num_supports)
    checks.positives(bandwidth=bandwidth, density=density, noise=noise)
    averaged = num_supports * density * (2 * jnp.sqrt(jnp.pi) * bandwidth) ** dimension
    return jnp.asarray(noise / averaged)


def best_bandwidth(bias: Number, variance: Number, dimension: int) -> Float[Array, ""]:
    """Return the bandwidth $(d v / 4 b^2)^{1 / (d + 4)}$ of least mean squared error (C31).

    The mean squared error is $b^2 h^4 + v h^{-d}$. Since $v$ falls as $1 / n$ with the number n of
    supports, the best bandwidth falls as $n^{-1 / (d + 4)}$, and the error as $n^{-4 / (d + 4)}$.

    Args:
        bias: root mean square $b$ > 0 of the bias at bandwidth 1 (see `smoothing_bias`).
        variance: variance $v$ > 0 at bandwidth 1 (see `smoothing_variance`).

    >>> float(best_bandwidth(0.5, 1.0, 1))
    1.0
    """
    checks.count("dimension", dimension)
    checks.positives(bias=bias, variance=variance)
    return jnp.asarray((dimension * variance / (4 * bias**2)) ** (1 / (dimension + 4)))

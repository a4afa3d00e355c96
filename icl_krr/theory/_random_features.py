"""Variance of random-feature estimates of the exponential kernel exp(<x, z> / t) (C21, C33)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks

Number = jax.Array | float


def positive_variance(
    x: Float[Array, "... p"], z: Float[Array, "... p"], temperature: Number, width: int
) -> Float[Array, "..."]:
    r"""Return the variance of the estimate of $k(x, z)$ from m positive random features (C21).

    $$k(x, z)^2 (e^{|x + z|^2 / \tau} - 1) / m$$

    The formula holds for independent features. Orthogonal features have a smaller variance. The
    points are [..., p], and leading axes broadcast.

    Source: Choromanski et al., Rethinking attention with Performers, lemma 2.

    >>> float(positive_variance(jnp.zeros(2), jnp.zeros(2), 1.0, 8))
    0.0
    """
    check(x, z, temperature, width)
    value = jnp.exp(jnp.sum(x * z, axis=-1) / temperature)
    return value**2 * jnp.expm1(jnp.sum((x + z) ** 2, axis=-1) / temperature) / width


def trigonometric_variance(
    x: Float[Array, "... p"], z: Float[Array, "... p"], temperature: Number, width: int
) -> Float[Array, "..."]:
    r"""Return the variance of the estimate of $k(x, z)$ from m trigonometric features (C21).

    $$e^{(|x|^2 + |z|^2) / \tau} (1 - e^{-|x - z|^2 / \tau})^2 / m$$

    The features are m / 2 cosines and m / 2 sines with independent frequencies. The variance is
    large where $k(x, z)$ is small, so estimates of a small $k(x, z)$ can be negative.

    Source: Choromanski et al., Rethinking attention with Performers, lemma 2.

    >>> float(trigonometric_variance(jnp.ones(2), jnp.ones(2), 1.0, 8))
    0.0
    """
    check(x, z, temperature, width)
    sizes = jnp.sum(x * x + z * z, axis=-1) / temperature
    distance = jnp.sum((x - z) ** 2, axis=-1) / temperature
    return jnp.exp(sizes) * jnp.expm1(-distance) ** 2 / width


def performer_width(dimension: int, radius: Number, error: Number) -> Float[Array, ""]:
    r"""Return a number of trigonometric features for a given error of all attention scores (C33).

    $$m = (d / \delta^2) \log(4 d^{3/4} R / \delta), \quad \delta = \epsilon e^{-R^2 / \sqrt{d}}$$

    With m orthogonal frequencies, a cosine and a sine each, the estimates of
    $\exp(q^T k / \sqrt{d})$ for all queries q and keys k of norm at most $R$ have an error of at
    most $\epsilon$, with any constant probability. The theorem states m up to a constant factor,
    which is 1 here. For $R \leq d^{1/4}$, m grows as $d \log d$. For $R = \sqrt{d}$, which is the
    norm of vectors with entries of variance 1, m grows as $e^{2 \sqrt{d}}$.

    Args:
        dimension: number $d$ of entries of queries and keys, >= 1.
        radius: radius $R$ > 0 of the ball of queries and keys.
        error: absolute error $\epsilon$ > 0.

    Source: Choromanski et al., Rethinking attention with Performers, theorem 4.

    >>> float(performer_width(16, 2.0, 0.5).round())
    2767.0
    """
    checks.count("dimension", dimension)
    checks.positives(radius=radius, error=error)
    delta = error * jnp.exp(-(jnp.asarray(radius) ** 2) / dimension**0.5)
    return dimension / delta**2 * jnp.log(4 * dimension**0.75 * radius / delta)


def check(x: jax.Array, z: jax.Array, temperature: Number, width: int) -> None:
    checks.shapes(x=(x, "... p"), z=(z, "... p"))
    checks.positive_scalar("temperature", temperature)
    checks.count("width", width)

"""Variance of random-feature estimates of the exponential kernel exp(<x, z> / t) (C21)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, shapes

Number = jax.Array | float


def positive_variance(
    x: Float[Array, "... p"], z: Float[Array, "... p"], temperature: Number, width: int
) -> Float[Array, "..."]:
    r"""Return the variance of the estimate of $k(x, z)$ from m positive random features (C21).

    $$k(x, z)^2 (e^{|x + z|^2 / \tau} - 1) / m$$

    The formula holds for independent features. Orthogonal features have a smaller variance.

    Args:
        x: points [..., p].
        z: points [..., p]; the leading axes broadcast against those of `x`.
        temperature: temperature $\tau$ > 0 of the exponential kernel $k$.
        width: number m of features.

    Returns:
        The variance of the estimate of $k(x, z)$, [...].

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

    Args:
        x: points [..., p].
        z: points [..., p]; the leading axes broadcast against those of `x`.
        temperature: temperature $\tau$ > 0 of the exponential kernel $k$.
        width: number m of features.

    Returns:
        The variance of the estimate of $k(x, z)$, [...].

    Source: Choromanski et al., Rethinking attention with Performers, lemma 2.

    >>> float(trigonometric_variance(jnp.ones(2), jnp.ones(2), 1.0, 8))
    0.0
    """
    check(x, z, temperature, width)
    sizes = jnp.sum(x * x + z * z, axis=-1) / temperature
    distance = jnp.sum((x - z) ** 2, axis=-1) / temperature
    return jnp.exp(sizes) * jnp.expm1(-distance) ** 2 / width


def check(x: jax.Array, z: jax.Array, temperature: Number, width: int) -> None:
    shapes.check(x=(x, "... p"), z=(z, "... p"))
    checks.positive_scalar("temperature", temperature)
    checks.count("width", width)
    try:
        jnp.broadcast_shapes(x.shape, z.shape)
    except ValueError:
        raise ValueError(
            f"z must have leading axes that broadcast against those of x {list(x.shape)}, "
            f"got shape {list(z.shape)}"
        ) from None

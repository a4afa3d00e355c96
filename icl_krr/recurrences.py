"""Coefficients of iterations that need no sums, known before they start."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from . import checks


def alpha_step_size(step_size, spectrum, ridge):
    eta = checks.step_size(step_size, spectrum)
    if spectrum is None:
        return eta
    low, high = spectrum
    return 2 / (low * (low - ridge) + high * (high - ridge))


def heavy_ball_coefficients(steps, step_size, momentum, spectrum):
    if spectrum is not None:
        low, high = spectrum
        root = jnp.sqrt(low) + jnp.sqrt(high)
        step_size, momentum = 4 / root**2, ((jnp.sqrt(high) - jnp.sqrt(low)) / root) ** 2
    return step_size, jnp.full(steps, momentum), jnp.full(steps, step_size)


def chebyshev_coefficients(low, high, steps):
    theta, delta = (high + low) / 2, (high - low) / 2

    def step(rho, _):
        inverse = 1 / (2 * theta - delta * rho)
        return delta * inverse, (delta * inverse * rho, 2 * inverse)

    _, (a, b) = jax.lax.scan(step, delta / theta, length=steps)
    return 1 / theta, a, b

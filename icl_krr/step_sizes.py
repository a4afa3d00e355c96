"""Step sizes and coefficients that solvers without inner products know beforehand."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import checks


class Momentum(NamedTuple):
    """p_0 = `first` r_0 and p_{t+1} = a_t p_t + b_t r_{t+1}, with a and b [steps]."""

    first: Float[Array, ""]
    a: Float[Array, " steps"]
    b: Float[Array, " steps"]


def gradient_step(step_size: Any, spectrum: Any) -> Any:
    """The step of gradient descent: given, or 2 / (low + high) for bounds on the spectrum.

    The latter contracts the error by (cond - 1) / (cond + 1) a step, and no fixed step does
    better when only the bounds are known.
    """
    checks.one_of(step_size, spectrum)
    if spectrum is None:
        checks.positive_scalar("step_size", step_size)
        return step_size
    low, high = checks.spectrum(spectrum)
    return 2 / (low + high)


def alpha_step(step_size: Any, spectrum: Any, ridge: Any) -> Any:
    """The same for the gradient in alpha, whose matrix is K A with A = K + ridge I.

    Where K is singular, low = ridge, the rule would give 2 / (high (high - ridge)), at which
    the largest mode flips its sign for ever: there it is half of that.
    """
    if spectrum is None or step_size is not None:
        return gradient_step(step_size, spectrum)
    low, high = (jnp.asarray(bound, float) for bound in checks.spectrum(spectrum))
    ridge = jnp.asarray(ridge, float)
    smallest, largest = low * (low - ridge), high * (high - ridge)
    singular = smallest <= 32 * jnp.finfo(low.dtype).eps * largest
    return jnp.where(singular, 1, 2) / (jnp.where(singular, 0, smallest) + largest)


def heavy_ball(steps: int, step_size: Any, momentum: Any, spectrum: Any) -> Momentum:
    """Polyak's method, a_t = mu and b_t = eta, given or for bounds on the spectrum.

    eta = 4 / (sqrt high + sqrt low)^2, mu = ((sqrt high - sqrt low) / (sqrt high + sqrt low))^2.
    """
    checks.one_of(step_size, spectrum)
    if spectrum is not None:
        if momentum is not None:
            raise ValueError(f"momentum must be left to spectrum, got {momentum} and both")
        low, high = (jnp.sqrt(bound) for bound in checks.spectrum(spectrum))
        step_size, momentum = 4 / (low + high) ** 2, ((high - low) / (high + low)) ** 2
    else:
        checks.positive_scalar("step_size", step_size)
        if momentum is None:
            raise ValueError("momentum must be given beside step_size, got none")
        checks.nonnegative_scalar("momentum", momentum)
    eta, mu = jnp.asarray(step_size, float), jnp.asarray(momentum, float)
    return Momentum(eta, jnp.full(steps, mu), jnp.full(steps, eta))


def chebyshev(steps: int, spectrum: Any) -> Momentum:
    """The Chebyshev iteration: the optimal polynomial for bounds on the spectrum.

    With theta and delta the interval's centre and half its width, rho_0 = delta / theta and
    rho_{t+1} = delta / (2 theta - delta rho_t): a_t = rho_{t+1} rho_t and
    b_t = 2 rho_{t+1} / delta, written such that delta may be 0.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.
    """
    low, high = (jnp.asarray(bound, float) for bound in checks.spectrum(spectrum))
    theta, delta = (high + low) / 2, (high - low) / 2

    def step(rho: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        b = 2 / (2 * theta - delta * rho)
        rho_next = delta * b / 2
        return rho_next, (rho_next * rho, b)

    _, (a, b) = jax.lax.scan(step, delta / theta, length=steps)
    return Momentum(1 / theta, a, b)


def newton_schulz(steps: int, ridge: Any, spectrum: Any) -> tuple[Any, Float[Array, " steps"]]:
    """The scale s = 2 / (low + high) of V_0 = s I, and e_t = (1 - s ridge)^(2^t).

    e_t is what I - C V_t does to a direction without features.
    """
    low, high = checks.spectrum(spectrum)
    scale = 2 / (low + high)
    first = jnp.asarray(1 - scale * ridge, float)
    _, e = jax.lax.scan(lambda e, _: (e * e, e), first, length=steps)
    return scale, e


def richardson_step(step_size: Any) -> Any:
    """A step in (0, 2), which converges for every n where ridge <= sink."""
    checks.positive_scalar("step_size", step_size)
    known = checks.concrete(step_size)
    if known is not None and not known < 2:
        raise ValueError(f"step_size must be < 2 to converge, got {step_size}")
    return step_size

"""Step sizes and coefficients of the solvers that need no inner products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import checks
from .constants import any_instance, as_constant, xp


class Momentum(NamedTuple):
    """Coefficients [steps] of the recurrence p_0 = first * r_0, p_{t+1} = a_t p_t + b_t r_{t+1}."""

    first: Float[Array, ""]
    a: Float[Array, " steps"]
    b: Float[Array, " steps"]


def gradient_step(step_size: Any, spectrum: Any) -> Any:
    """Return the step size of gradient descent, 2 / (low + high) for a given spectrum.

    Every step then multiplies the error by at most (cond - 1) / (cond + 1), where cond = high /
    low. No fixed step size has a smaller bound if only low and high are known.
    """
    checks.step_size_or_spectrum(step_size, spectrum)
    if spectrum is None:
        checks.positive_scalar("step_size", step_size)
        return as_constant(step_size)
    low, high = map(as_constant, checks.spectrum(spectrum))
    return 2 / (low + high)


def alpha_step(step_size: Any, spectrum: Any, ridge: Any) -> Any:
    """Return the step size of gradient descent in alpha, whose matrix is K A with A = K + ridge I.

    For a given spectrum it is 2 / (low (low - ridge) + high (high - ridge)). If K is singular, low
    = ridge, and the error along the leading eigenvector would change its sign in every step and
    never shrink: then it is half of this. The rounding error of high - ridge is about 32 eps high,
    and at least this value is used, so that the step size is finite if high = ridge, as for a K
    that vanishes against the ridge.
    """
    if spectrum is None or step_size is not None:
        return gradient_step(step_size, spectrum)
    low, high = (xp.asarray(bound, float) for bound in checks.spectrum(spectrum))
    ridge = xp.asarray(ridge, float)
    rounding = 32 * jnp.finfo(low.dtype).eps
    smallest, largest = low * (low - ridge), high * xp.maximum(high - ridge, rounding * high)
    singular = smallest <= rounding * largest
    once = 1 / (xp.where(singular, 0, smallest) + largest)
    return xp.where(singular, once, 2 * once)


def heavy_ball(steps: int, step_size: Any, momentum: Any, spectrum: Any) -> Momentum:
    """Return the coefficients of Polyak's heavy-ball method, a_t = mu and b_t = eta."""
    checks.step_size_or_spectrum(step_size, spectrum)
    if spectrum is not None:
        if momentum is not None:
            raise ValueError(
                f"momentum must be None if spectrum is given, got {momentum}; drop one of the two"
            )
        low, high = (xp.sqrt(as_constant(bound)) for bound in checks.spectrum(spectrum))
        step_size, momentum = 4 / (low + high) ** 2, ((high - low) / (high + low)) ** 2
    else:
        checks.positive_scalar("step_size", step_size)
        if momentum is None:
            raise ValueError(
                "momentum must be given with step_size, got None; "
                "pass momentum, or pass spectrum instead of step_size and momentum"
            )
        checks.nonnegative_scalar("momentum", momentum)
    eta, mu = xp.asarray(step_size, float), xp.asarray(momentum, float)
    return Momentum(eta, xp.repeat(mu, steps), xp.repeat(eta, steps))


def chebyshev(steps: int, spectrum: Any) -> Momentum:
    """Return the coefficients of the Chebyshev iteration for a given spectrum.

    Let theta be the centre of the interval [low, high] and delta half its length. Then rho_0 =
    delta / theta, rho_{t+1} = delta / (2 theta - delta rho_t), a_t = rho_{t+1} rho_t and b_t = 2
    rho_{t+1} / delta, computed without dividing by delta, which may be 0.
    """
    low, high = (xp.asarray(bound, float) for bound in checks.spectrum(spectrum))
    theta, delta = (high + low) / 2, (high - low) / 2
    return Momentum(1 / theta, *_iterate(_recurrence, steps, delta / theta, theta, delta))


def _recurrence(rho: Any, theta: Any, delta: Any) -> tuple[Any, tuple[Any, Any]]:
    b = 2 / (2 * theta - delta * rho)
    rho_next = delta * b / 2
    return rho_next, (rho_next * rho, b)


def _iterate(step: Callable, steps: int, first: Any, *constants: Any) -> Any:
    """Stack what step(state, *constants) -> (next state, result) returns, beginning at `first`."""
    if any_instance(jax.Array, (first, *constants)):
        return _scan(step, steps, first, *constants)
    state, results = first, []
    for _ in range(steps):
        state, result = step(state, *constants)
        results.append(result)
    return jax.tree.map(lambda *parts: np.stack(parts), *results)


# outside of jit, JAX would compile the scan again for every call
@partial(jax.jit, static_argnums=(0, 1))
def _scan(step: Callable, steps: int, first: jax.Array, *constants: jax.Array) -> Any:
    return jax.lax.scan(lambda state, _: step(state, *constants), first, length=steps)[1]


def normalised_spectrum(kernel: Any, ridge: Any, num_supports: Any, largest: Any = None) -> tuple:
    """Return bounds on the eigenvalues of (D + ridge I)^-1 (K + ridge I) for n supports.

    They are (ridge / (n largest + ridge), 1), where `largest` bounds all values of the kernel.
    """
    checks.positive_scalar("ridge", ridge)
    checks.at_least("num_supports", num_supports, 1)
    largest = kernel.largest if largest is None else largest
    if largest is None:
        raise ValueError(
            f"largest must be given for {kernel!r}, whose values have no bound; use the largest "
            "k(x, x) of your supports"
        )
    checks.positive_scalar("largest", largest)
    ridge, largest, n = (xp.asarray(value, float) for value in (ridge, largest, num_supports))
    return ridge / (n * largest + ridge), np.ones((), ridge.dtype)


def newton_schulz(steps: int, ridge: Any, spectrum: Any) -> tuple[Any, Float[Array, " steps"]]:
    """Return the scale s = 2 / (low + high) of V_0 = s I, and e_t = (1 - s ridge)^(2^t).

    A vector that is orthogonal to the features of all supports is an eigenvector of I - C V_t, with
    the eigenvalue e_t.
    """
    low, high = map(as_constant, checks.spectrum(spectrum))
    scale = 2 / (low + high)
    return scale, _iterate(_square, steps, xp.asarray(1 - scale * as_constant(ridge), float))


def _square(e: Any) -> tuple[Any, Any]:
    return e * e, e


def richardson_step(step_size: Any) -> Any:
    """Check and return the step size of Richardson's iteration."""
    checks.positive_scalar("step_size", step_size)
    if (value := checks.concrete(step_size)) is not None and not value < 2:
        raise ValueError(f"step_size must be < 2 to converge, got {step_size}")
    return as_constant(step_size)
